"""The delegation tokens of the cluster, as a node's image has them."""

from collections.abc import Callable, Mapping

from millstream.security.delegation import DelegationToken


class DelegationTokens:
    """By token id. `listeners` are called on the loop, after every change."""

    __slots__ = ("_tokens", "listeners")

    def __init__(self) -> None:
        self._tokens: dict[str, DelegationToken] = {}
        self.listeners: list[Callable[[], None]] = []

    @property
    def tokens(self) -> Mapping[str, DelegationToken]:
        return self._tokens

    def put(self, token_id: str, token: DelegationToken | None) -> None:
        others = {one: its for one, its in self._tokens.items() if one != token_id}
        self.replace(others if token is None else {**others, token_id: token})

    def replace(self, everything: Mapping[str, DelegationToken]) -> None:
        if everything == self._tokens:
            return
        self._tokens = dict(everything)
        for listener in tuple(self.listeners):
            listener()
