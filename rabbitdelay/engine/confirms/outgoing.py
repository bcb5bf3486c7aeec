"""The messages of a publisher that are not resolved, with the lanes and channels that they take."""

from rabbitdelay.core.publish.lanes import Lanes
from rabbitdelay.core.publish.outbox import Outbox
from rabbitdelay.engine.confirms.confirm_channel import ConfirmListener
from rabbitdelay.engine.confirms.confirm_channels import ConfirmChannels
from rabbitdelay.engine.connection import Connector


class Outgoing:
    """One outbox, and the lanes and channels of the current connection."""

    def __init__(self, connector: Connector, listener: ConfirmListener) -> None:
        self.outbox = Outbox()
        self.lanes = Lanes()
        self.channels = ConfirmChannels(connector, self.outbox, listener)

    def connection_lost(self) -> None:
        """Forget lanes and channels; keep the messages, to publish them on the next connection."""
        self.channels.clear()
        self.lanes.clear()
        self.outbox.connection_lost()
