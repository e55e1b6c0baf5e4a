"""Messages that torch and Linux really give, and what becomes of them."""

from __future__ import annotations

import sys

import pytest

from hostprep.errors import HostprepError, Inconclusive
from hostprep.loading.failures import LoaderFailed, WorkersFailed, died, hung
from hostprep.loading.model import Binding
from hostprep.loading.raising import raised


def failure(
    message: str, *causes: str, kind: str = "RuntimeError", where: str = "iterate"
) -> HostprepError:
    trace = (
        'Traceback:\n  File "/usr/lib/torch/utils/data/x.py", line 9, in next\n'
        '  File "/home/u/train.py", line 12, in __getitem__\n'
    )
    event = {
        "where": where,
        "type": kind,
        "message": message,
        "causes": list(causes),
        "trace": trace,
    }
    return raised(event, "mine:data", 4)


@pytest.mark.parametrize(
    "message",
    [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "No CUDA GPUs are available",
        "CUDA error: no CUDA-capable device is detected",
        "module 'torch._C' has no attribute '_cuda_setDevice'",  # of torch.cuda.set_device
        "Cannot get CUDA generator without ATen_cuda library. PyTorch splits its backend into two",
        "torch.cuda.Stream requires CUDA support",
        "Tried to instantiate dummy base class Event",
        "PyTorch was compiled without CUDA support",  # of `with torch.cuda.device`
        "Cannot access accelerator device when none is available.",  # of pin_memory
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "You are trying to create a GPU DALI pipeline while CUDA is not available.",
    ],
)
@pytest.mark.parametrize("where", ["open", "iterate"])
def test_a_gpu_that_is_not_there_is_no_fault_of_the_loader(message: str, where: str) -> None:
    error = failure(message, where=where)
    assert isinstance(error, Inconclusive)
    assert "needs a GPU" in error.message and message.rstrip(".") in error.message


@pytest.mark.parametrize("why", ["Operation not permitted (1)", "Read-only file system (30)"])
def test_shared_memory_that_may_not_be_made_is_not_called_too_small(why: str) -> None:
    error = failure(f"unable to open shared memory object </torch_1_2_0> in read-write mode: {why}")
    assert not isinstance(error, WorkersFailed) and why in error.message
    assert error.hint is not None and "larger" not in error.hint and "ls -ld /dev/shm" in error.hint


@pytest.mark.parametrize(
    ("message", "binding"),
    [
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
            " dataloader's workers are out of shared memory.",
            Binding.SHARED_MEMORY,
        ),
        ("unable to write to file </torch_7_1>: No space left on device", Binding.SHARED_MEMORY),
        (
            "unable to open shared memory object </torch_1> in read-write mode",
            Binding.SHARED_MEMORY,
        ),
        ("[Errno 28] No space left on device", Binding.SHARED_MEMORY),  # of a queue's semaphore
        ("received 0 items of ancdata", Binding.DESCRIPTORS),
        ("[Errno 24] Too many open files", Binding.DESCRIPTORS),
        (
            "unable to open shared memory object </torch_1> in read-write mode: Too many open"
            " files (24)",
            Binding.DESCRIPTORS,
        ),
        ("DataLoader worker (pid 8) is killed by signal: Killed.", Binding.MEMORY),
        ("[Errno 11] Resource temporarily unavailable", Binding.PROCESSES),  # of fork
        ("can't start new thread", Binding.PROCESSES),
        ("[Errno 12] Cannot allocate memory", Binding.MEMORY),
    ],
)
def test_what_the_host_limits_is_told_from_what_the_loader_does(
    message: str, binding: Binding
) -> None:
    error = failure(message)
    assert isinstance(error, WorkersFailed)
    assert error.binding is binding
    assert error.hint
    assert error.exit_code == 1


def test_a_killed_worker_is_told_from_the_cause_alone() -> None:
    error = failure(
        "DataLoader worker (pid(s) 71) exited unexpectedly",
        "DataLoader worker (pid 71) is killed by signal: Killed. ",
    )
    assert isinstance(error, WorkersFailed)
    assert error.binding is Binding.MEMORY


@pytest.mark.parametrize(
    "message",
    [
        "[Errno 9] Bad file descriptor",
        "[Errno 28] No space left on device: '/var/cache/x'",
        "Caught OSError in DataLoader worker process 0.\nOSError: No space left on device",
    ],
)
def test_what_the_loader_does_to_its_own_files_is_no_limit_of_the_host(message: str) -> None:
    assert not isinstance(failure(message, kind="OSError"), WorkersFailed)


@pytest.mark.parametrize(
    "message",
    [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "No CUDA GPUs are available",
    ],
)
def test_a_missing_gpu_is_inconclusive(message: str) -> None:
    error = failure(message)
    assert isinstance(error, Inconclusive)
    assert error.exit_code == 4


def test_cuda_in_forked_workers_has_its_cure() -> None:
    error = failure("Cannot re-initialize CUDA in forked subprocess. To use CUDA with ...")
    assert "spawn" in (error.hint or "")
    assert error.exit_code == 1


def test_a_workers_own_exception_is_what_is_quoted_with_its_place() -> None:
    text = (
        "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call"
        " last):\n  File \"x.py\", line 1, in f\nKeyError: 'label'"
    )
    error = failure(text, kind="KeyError")
    assert "KeyError: 'label'" in error.message
    assert error.hint == "see /home/u/train.py:12"


def passed_on(traceback: str, said: str, kind: str = "RuntimeError") -> HostprepError:
    """Return the error for an exception of a worker, as torch passes it on."""
    text = (
        f"Caught {kind} in DataLoader worker process 0.\nOriginal Traceback (most recent call"
        f" last):\n{traceback}{said}\n"
    )
    return failure(text, kind=kind)


@pytest.mark.parametrize(
    ("traceback", "said"),
    [
        (
            '  File "/v/site-packages/torch_geometric/data/dataset.py", line 1, in f\n    f()\n',
            "RuntimeError: no edges",
        ),
        ('  File "/home/me/torch_project/x.py", line 1, in f\n    f()\n', "ValueError: 3"),
        (
            '  File "x.py", line 1, in f\n    return pickle.load(file)\n           ^^^^^\n',
            "EOFError: Ran out of input",
        ),
        (
            '  File "x.py", line 1, in f\n    pickle.dump(thing, file)\n',
            "TypeError: cannot pickle '_thread.lock' object",
        ),
        (
            '  File "x.py", line 1, in f\n    raise MemoryError("Too many open files")\n'
            "  [Previous line repeated 3 more times]\n",
            "KeyError: '/home/me/torch_1_2'",
        ),
    ],
)
def test_what_a_traceback_quotes_tells_nothing(traceback: str, said: str) -> None:
    error = passed_on(traceback, said)
    assert not isinstance(error, WorkersFailed)
    assert f"raised while it made a batch with 4 workers: {said}" in error.message


def test_of_a_workers_words_the_first_line_is_quoted_and_all_are_read() -> None:
    frame = '  File "x.py", line 1, in f\n    f()\n'
    error = passed_on(frame, "RuntimeError: it did not work\n  shared memory is full")
    assert isinstance(error, WorkersFailed)
    assert error.message.endswith("RuntimeError: it did not work.")
    in_shm = passed_on(
        frame, "RuntimeError: unable to write to file </torch_7_1>: No space left on device (28)"
    )
    assert isinstance(in_shm, WorkersFailed)
    assert in_shm.binding is Binding.SHARED_MEMORY


def test_unpicklable_under_spawn() -> None:
    error = failure("Can't pickle local object 'f.<locals>.<lambda>'", kind="AttributeError")
    assert isinstance(error, LoaderFailed)
    assert "spawn or forkserver" in error.message


def test_an_open_file_is_not_to_be_shared_by_fork() -> None:
    error = failure("cannot pickle '_io.BufferedReader' object", kind="TypeError")
    assert "spawn or forkserver" in error.message
    assert "worker_init_fn" in (error.hint or "")
    assert "multiprocessing_context" not in (error.hint or "")


def test_a_worker_without_a_thread_of_its_own_only_prints_so() -> None:
    event = {
        "where": "iterate",
        "type": "RuntimeError",
        "message": "DataLoader worker (pid(s) 7) exited unexpectedly",
        "causes": [],
        "trace": "",
    }
    printed = "Traceback ...\nRuntimeError: can't start new thread\n"
    error = raised(event, "mine:data", 4, printed)
    assert isinstance(error, WorkersFailed)
    assert error.binding is Binding.PROCESSES
    assert not isinstance(raised(event, "mine:data", 4, "boom"), WorkersFailed)


@pytest.mark.parametrize(
    ("kind", "message", "printed"),
    [
        ("RuntimeError", "can't start new thread", ""),
        ("KeyboardInterrupt", "", "OpenBLAS blas_thread_init: pthread_create failed for thread 1"),
    ],
)
def test_without_workers_too_a_limit_on_threads_is_known(
    kind: str, message: str, printed: str
) -> None:
    """OpenBLAS interrupts the program that it can start no threads for, as Ctrl-C does."""
    event = {"where": "iterate", "type": kind, "message": message, "causes": [], "trace": ""}
    error = raised(event, "mine:data", 0, printed)
    assert type(error) is LoaderFailed and (message or printed) in error.message
    assert error.hint is not None and "--pids-limit" in error.hint
    other = raised({**event, "message": "boom"}, "mine:data", 0)
    assert "--pids-limit" not in (other.hint or "")


def test_of_a_worker_that_was_killed_the_signal_is_told() -> None:
    error = failure(
        "DataLoader worker (pid(s) 7) exited unexpectedly",
        "DataLoader worker (pid 7) is killed by signal: Segmentation fault. ",
    )
    assert "with 4 workers: " in error.message
    assert "killed by signal: Segmentation fault." in error.message
    assert error.hint is not None and "PYTHONFAULTHANDLER=1" in error.hint


def test_what_ends_the_program_has_said_why() -> None:
    event = {"where": "open", "type": "SystemExit", "message": "2", "causes": [], "trace": ""}
    said = "usage: train.py [-h] --root ROOT\ntrain.py: error: arguments are required: --root\n"
    error = raised(event, "train:x", 0, said)
    assert "SystemExit: 2: train.py: error: arguments" in error.message
    assert "without a command line" in (error.hint or "")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("no data below /srv/birds", "SystemExit: no data below /srv/birds."),
        ("", "SystemExit: loading the index."),
        ("-1", "SystemExit: -1: loading the index."),
        ("None", "SystemExit: None: loading the index."),
    ],
)
def test_who_ends_the_program_with_a_sentence_has_said_no_other(given: str, told: str) -> None:
    event = {"where": "open", "type": "SystemExit", "message": given, "causes": [], "trace": ""}
    error = raised(event, "train:x", 0, "loading the index\n")
    assert error.message == f"train:x could not be opened: {told}"


def test_a_warning_is_not_why_it_ended() -> None:
    warned = (
        "/lib/torch/utils/data/dataloader.py:666: UserWarning: This DataLoader will create 4"
        " workers.\n  self.check_worker_number_rationality()\n"
    )
    event = {"where": "iterate", "type": "SystemExit", "message": "3", "causes": [], "trace": ""}
    assert "SystemExit: 3." in raised(event, "train:x", 0, warned).message
    assert "SystemExit: 3: no data" in raised(event, "train:x", 0, f"no data\n{warned}").message
    assert died("mine:data", "opened", 7, warned).message.endswith("made: it said nothing")
    assert died("mine:data", "opened", 7, f"boom\n{warned}").message.endswith("made: boom")


def test_a_sampler_that_wants_a_process_group_can_do_without() -> None:
    event = {"where": "open", "type": "ValueError", "causes": []}
    event["message"] = "Default process group has not been initialized, please make sure to call it"
    event["trace"] = '  File "/home/me/train.py", line 7, in make\n    DistributedSampler(data)\n'
    hint = raised(event, "train:make", 0).hint or ""
    assert "num_replicas=N, rank=0" in hint and hint.endswith("see /home/me/train.py:7")


@pytest.mark.parametrize("where", ["beyond top-level package", "with no known parent package"])
def test_a_module_of_a_package_is_to_be_named_in_whole(where: str) -> None:
    event = {"where": "open", "type": "ImportError", "causes": [], "trace": ""}
    event["message"] = f"attempted relative import {where}"
    assert "in the folder above" in (raised(event, "loaders:make", 0).hint or "")


def test_of_a_module_that_is_not_installed_here_the_python_is_told() -> None:
    error = failure("No module named 'webdataset'", where="open", kind="ModuleNotFoundError")
    assert error.hint is not None and "environment" in error.hint and sys.executable in error.hint


def test_a_data_set_with_workers_of_its_own_takes_none() -> None:
    said = "The number of workers for the data loader used to pop patches should be 0. Is it?"
    assert "workers of its own" in (failure(said).hint or "")


def test_a_data_module_that_was_not_set_up_is_told_so() -> None:
    event = {"where": "open", "type": "AttributeError", "causes": [], "trace": ""}
    event["message"] = "'DataModule' object has no attribute 'train'"
    assert "setup('fit')" in (raised(event, "mine:module.train_dataloader", 0).hint or "")
    assert "setup" not in (raised(event, "mine:module", 0).hint or "")


def test_a_script_whose_workers_import_it_anew_is_told_what_it_lacks() -> None:
    # All that torch says where the worker, which runs the script once more, may start none.
    error = failure("DataLoader worker (pid(s) 28797) exited unexpectedly", where="open")
    assert error.hint is not None and "`if __name__ == '__main__':`" in error.hint


def test_of_an_exported_notebook_its_magics_are_named() -> None:
    error = failure("name 'get_ipython' is not defined", where="open", kind="NameError")
    assert error.hint is not None and "exported notebook" in error.hint


def test_what_wants_arguments_is_to_be_wrapped() -> None:
    event = {"where": "open", "type": "TypeError", "causes": [], "trace": ""}
    event["message"] = "make() missing 1 required positional argument: 'root'"
    assert "a function of your own" in (raised(event, "mine:make", 0).hint or "")


@pytest.mark.parametrize("in_worker", [False, True])
def test_samples_without_a_collate_function_of_theirs(in_worker: bool) -> None:
    trace = '  File "/venv/torch/utils/data/_utils/collate.py", line 9, in f\n    f()\n'
    said = "TypeError: default_collate: batch must contain tensors, found <class 'Image'>"
    event = {"where": "iterate", "type": "TypeError", "causes": []}
    if in_worker:
        message = f"Caught TypeError in worker 0.\nOriginal Traceback:\n{trace}{said}"
        event |= {"message": message, "trace": '  File "/venv/torch/_utils.py", line 1, in g\n'}
    else:
        event |= {"message": said.removeprefix("TypeError: "), "trace": trace}
    error = raised(event, "mine:data", 2 * in_worker)
    assert "name a DataLoader that has a collate_fn" in (error.hint or "")
    assert "transform" in (error.hint or "")


def test_opening_and_iterating_are_told_apart() -> None:
    assert "could not be opened" in failure("gone", where="open").message
    assert "while it made a batch" in failure("gone").message


def test_ends_without_a_word() -> None:
    assert "SIGSEGV" in died("mine:data", "opened", -11, "").message
    assert "memory runs out" in died("mine:data", "opened", -9, "").message
    assert "with status 3" in died("mine:data", "opening", 3, "boom\n").message
    assert "no batch with 1 worker within 20 s" in hung("mine:data", "opened", 1, 20).message


@pytest.mark.parametrize(
    ("phase", "status", "workers", "fewer"),
    [
        ("first_batch", -9, 16, True),
        ("opened", -9, 16, True),
        ("opening", -9, 16, False),
        ("first_batch", -9, 0, False),
        ("first_batch", -11, 16, False),
    ],
)
def test_who_started_too_many_workers_may_be_what_the_kernel_kills(
    phase: str, status: int, workers: int, fewer: bool
) -> None:
    error = died("mine:data", phase, status, "", workers)
    assert isinstance(error, WorkersFailed) == fewer
    if isinstance(error, WorkersFailed):
        assert error.binding is Binding.MEMORY
        assert "16 workers" in error.message and "memory runs out" in error.message


def test_a_script_that_trains_when_it_is_imported_is_told_what_it_lacks() -> None:
    """It is opened for ever: so is a notebook that was exported."""
    assert "__main__" in (hung("mine:data", "opening", 0, 60).hint or "")
    assert "__main__" not in (hung("mine:data", "opened", 0, 60).hint or "")


def test_what_is_wrong_stands_below_the_pipeline_that_dali_quotes() -> None:
    message = (
        "Critical error when building pipeline:\n"
        "Error in CPU operator `nvidia.dali.fn.readers.file`,\n"
        "which was used in the pipeline definition with the following traceback:\n\n"
        '  File "/home/u/train.py", line 54, in images\n    files = fn.readers.file(file_root=ROOT)'
        '\n\nencountered:\n\nAssert on "dir != nullptr" failed: Failed to open /data/none\n'
        "C++ context: [discover_files.cc:47]\nCurrent pipeline object is no longer valid."
    )
    said = failure(message).message
    assert "RuntimeError: Critical error when building pipeline: Assert on" in said
    assert said.endswith("Failed to open /data/none.")
    assert failure("one of:").message.endswith("RuntimeError: one of:.")


def test_a_place_in_the_framework_is_no_place_in_the_users_code() -> None:
    trace = 'Traceback:\n  File "/v/site-packages/tensorflow/python/ops.py", line 9, in iterate\n'
    event = {
        "where": "iterate",
        "type": "NotFoundError",
        "message": "a.jpg; No such file or directory",
        "causes": [],
        "trace": trace,
    }
    assert raised(event, "mine:data", 0).hint is None
    event["trace"] = trace + '  File "/home/u/train.py", line 12, in load\n'
    assert raised(event, "mine:data", 0).hint == "see /home/u/train.py:12"


def test_workers_that_want_workers_of_their_own_are_told_that_there_are_none() -> None:
    error = failure(
        "Caught AssertionError in DataLoader worker process 0.\nOriginal Traceback"
        "\nAssertionError: daemonic processes are not allowed to have children"
    )
    assert isinstance(error, LoaderFailed)
    assert "num_workers=0 for the inner loader or pool" in (error.hint or "")
    assert "/home/u/train.py:12" in (error.hint or "")
