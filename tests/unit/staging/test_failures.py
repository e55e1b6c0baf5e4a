"""What a run says where the kernel, or a child that was asked, refused a step."""

from __future__ import annotations

import errno

from hostprep.staging.failures import failed
from hostprep.staging.model import StageRequest
from hostprep.system.bounded import QuestionFailed

REQUEST = StageRequest(source="/srv/data", name="data", parent="/mnt/ram", volume_size_bytes=None)
GENERAL = "mend that and run the same command again: it goes on with what was copied"


def test_what_helps_against_a_child_that_gave_no_answer_is_said() -> None:
    error = failed(QuestionFailed("the child ended without an answer", "see dmesg"), REQUEST)
    assert error.message.startswith("staging failed: the child ended without an answer;")
    assert error.hint == "see dmesg"
    assert failed(QuestionFailed("it is closed"), REQUEST).hint == GENERAL


def test_what_the_kernel_refused_is_named_with_the_folder_it_is_below() -> None:
    error = failed(OSError(errno.EIO, "Input/output error", "a/b"), REQUEST)
    assert "Input/output error (a/b, below /mnt/ram); the source was not touched." in error.message
    assert error.hint == GENERAL
