"""What helps where the copies are gone, and what was to be done after them failed."""

from __future__ import annotations

import pytest

from hostprep.errors import HostprepError
from hostprep.staging.unstage import hint_after
from hostprep.system.systemd import NotReloaded

_LATER = "hostprep unmount /mnt/v --fstab"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (HostprepError("it broke"), f"once that is over: {_LATER}"),
        (HostprepError("it broke", "make room"), f"make room; then: {_LATER}"),
        (NotReloaded("it broke", "run `systemctl daemon-reload`"), f"once that is over: {_LATER}"),
        (
            HostprepError("it broke", "run the same command again when the other program is done"),
            f"run `{_LATER}` when the other program is done",
        ),
        (
            HostprepError("it broke", "mend that, and run the same command again"),
            f"mend that, and run `{_LATER}`",
        ),
    ],
)
def test_the_same_command_which_knows_the_data_set_no_more_is_no_hint(
    error: HostprepError, hint: str
) -> None:
    assert hint_after(error, _LATER) == hint
