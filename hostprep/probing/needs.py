"""What is required of the storage: a number from the user, or a known training's."""

from __future__ import annotations

import re

from hostprep.dataclass import dataclass
from hostprep.errors import UsageError
from hostprep.probing.judgement import Need
from hostprep.units import parse_size

# Beyond these a measured rate would be infinitely more or less, which JSON cannot express.
_LEAST_RATE, _MOST_RATE = 1e-100, 1e100
_MLPERF = "MLPerf Storage (mlcommons/storage), batch x sample / computation time of its configs"


@dataclass(frozen=True, slots=True)
class Profile:
    """The demand of a training at full rate, per accelerator."""

    name: str
    sample_bytes: int
    batch: int
    step_seconds: float
    source: str

    @property
    def samples_per_s(self) -> float:
        """Return the samples a second that keep the accelerator busy."""
        return self.batch / self.step_seconds

    @property
    def bytes_per_s(self) -> float:
        """Return the bytes a second that keep the accelerator busy."""
        return self.samples_per_s * self.sample_bytes


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("resnet50-h100", 114_660, 400, 0.224, f"{_MLPERF}, resnet50_h100"),
        Profile("unet3d-h100", 146_600_628, 7, 0.323, f"{_MLPERF}, unet3d_h100"),
        Profile("cosmoflow-h100", 2_828_486, 1, 0.0035, f"{_MLPERF}, cosmoflow_h100"),
        Profile("retinanet-b200", 322_957, 24, 0.04755, f"{_MLPERF}, retinanet_b200"),
    )
}


def parse_need(text: str) -> Need:
    """Return the requirement in ``1800`` (samples/s), ``1800/s``, or ``400M``, ``400MB/s`` (bytes).

    Raises ``UsageError`` with the accepted forms.
    """
    hint = "accepted: 1800 (samples a second), 400M or 400MB (bytes a second)"
    bare = re.sub(r"/s$", "", text.strip(), flags=re.I | re.A)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", bare):
        value = float(bare)
        need = Need(text, value, None, "--need")
    else:
        try:
            value = float(parse_size(bare))
        except UsageError:
            raise UsageError(f"{text!r} is not a rate.", hint) from None
        need = Need(text, None, value, "--need")
    if value < _LEAST_RATE:
        raise UsageError(f"{text!r} requires nothing.", hint)
    if value > _MOST_RATE:
        raise UsageError(f"{text!r} is not a rate.", hint)
    return need


def profile_need(name: str) -> Need:
    """Return the requirement of the profile ``name``; ``UsageError`` with all names for another."""
    profile = PROFILES.get(name.lower())
    if profile is None:
        raise UsageError(f"there is no profile {name!r}.", "known: " + ", ".join(sorted(PROFILES)))
    return Need(name.lower(), profile.samples_per_s, profile.bytes_per_s, profile.source)
