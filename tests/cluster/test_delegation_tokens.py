from millstream.cluster.delegation_tokens import DelegationTokens
from millstream.security.delegation import DelegationToken

TOKEN = DelegationToken("id", "User:a", "User:a", (), 1, 9, 5)


def test_listeners_hear_of_changes_only():
    tokens, heard = DelegationTokens(), []
    tokens.listeners.append(lambda: heard.append(dict(tokens.tokens)))
    tokens.put("id", TOKEN)
    tokens.put("id", TOKEN)
    tokens.replace({"id": TOKEN})
    tokens.put("id", None)
    tokens.put("id", None)
    assert heard == [{"id": TOKEN}, {}]
