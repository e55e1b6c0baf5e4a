"""The volume that a run needs: made as planned, or as it has to be once another run was faster."""

from __future__ import annotations

from dataclasses import replace

from hostprep.staging.model import StageRequest
from hostprep.staging.observer import Observer
from hostprep.staging.planning import StagePlan
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.space import check_space, volume_request, volume_space
from hostprep.volumes.apply import AppliedVolume, Overtaken, apply_volume
from hostprep.volumes.facts import gather
from hostprep.volumes.plan import VolumePlan, plan_volume

# By how many that grow one volume at the same time a run may be overtaken.
_OTHER_RUNS = 8


def make_volume(plan: StagePlan, volume: VolumePlan, observer: Observer) -> AppliedVolume:
    """Make the volume as planned and return what was done of it.

    It is planned again where another run has made or grown it meanwhile, and nothing of the data
    set lay in it, which the rest of the plan would rest on. Raises as ``apply_volume`` does, and
    ``Refused`` where the data set does not fit any more.
    """
    for _ in range(_OTHER_RUNS):
        try:
            return apply_volume(volume, on_wait=observer.note)
        except Overtaken:
            volume = _planned_again(plan.request, plan.files)
            if plan.published or plan.files.resumed.files or volume.mount:
                raise
    return apply_volume(volume, on_wait=observer.note)


def _planned_again(request: StageRequest, files: CopyPlan) -> VolumePlan:
    facts = gather(request.parent)
    volume = plan_volume(volume_request(request, files, facts.live), facts)
    refusal = volume.refusal or check_space(request, volume_space(request, files, volume))
    return replace(volume, refusal=refusal)
