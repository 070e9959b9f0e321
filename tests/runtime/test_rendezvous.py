from penstock import errors
from penstock.runtime.cancellation import CancellationManager
from penstock.runtime.rendezvous import LocalRendezvous

from .rendezvous_contract import KEY, Inbox, RendezvousContract


class TestLocalRendezvous(RendezvousContract):
    def make(self):
        rendezvous = LocalRendezvous()
        return rendezvous, rendezvous


def test_nothing_is_left_behind():
    rendezvous = LocalRendezvous()
    manager = CancellationManager()
    inbox = Inbox()
    rendezvous.recv_async(KEY, inbox, manager)
    assert rendezvous.open_keys() == 1
    rendezvous.send(KEY, 1)
    assert rendezvous.open_keys() == 0
    assert not manager._callbacks  # a receiver that was served has left the cancellation manager as well
    rendezvous.recv_async(KEY, Inbox(), manager)
    rendezvous.abort(errors.AbortedError("x"))
    assert rendezvous.open_keys() == 0 and not manager._callbacks
