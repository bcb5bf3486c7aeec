"""Leases whose times a client has changed are not recorded for longer than a job can be leased."""

from dataclasses import replace
from typing import Any

import pytest

from rabbitdelay.core.deletes.records import MAX_MS
from rabbitdelay.errors import LeaseLost
from rabbitdelay.gateway.leases import lease_text
from tests.support.gateway.stage import GatewayStage, on_stage, pop

DAY_MS = 86_400_000


@pytest.mark.parametrize("field", ["deadline_ms", "due_ms"])
@pytest.mark.parametrize("added_ms", [3 * DAY_MS, None])
def test_times_that_cannot_be_right_are_refused(field: str, added_ms: int | None) -> None:
    """Each would be a record that every consumer keeps in memory until that time."""

    async def play(stage: GatewayStage) -> None:
        await stage.put(id="order-42")
        one, two = await stage.gateway(), await stage.gateway()
        held = await pop(one)
        lease = lease_text.decode(held.lease)
        time_ms = MAX_MS - 1 if added_ms is None else getattr(lease, field) + added_ms
        changed: dict[str, Any] = {field: time_ms, "nonce": "of-another-lease"}
        forged = replace(lease, **changed)
        await stage.disconnect(one)
        with pytest.raises(LeaseLost, match="cannot be right"):
            await two.finish(forged.encode())
        await two.finish(held.lease)

    on_stage(play)
