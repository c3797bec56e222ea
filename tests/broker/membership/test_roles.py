import uuid
from types import SimpleNamespace

from millstream.broker.membership.roles import Roles
from millstream.cluster.observer import ImageChange
from millstream.cluster.state import TopicState


def test_a_deletion_that_fails_hides_no_other_one(caplog):
    forgotten = []

    def forget(topic: TopicState) -> None:
        forgotten.append(topic.name)
        if topic.name == "t":
            raise ZeroDivisionError

    roles = Roles(SimpleNamespace(), SimpleNamespace(forget=forget), SimpleNamespace(), None)
    deleted = tuple(TopicState(name, uuid.uuid4(), []) for name in "tu")
    roles.image_changed(ImageChange(deleted=deleted))
    assert forgotten == ["t", "u"]
    assert "topic t is deleted" in caplog.text
