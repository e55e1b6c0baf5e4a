"""What to beware of in a run that may be done: told before it, by ``stage`` and by ``plan``."""

from __future__ import annotations

from hostprep.staging.planning import StagePlan
from hostprep.staging.source.opening import admission_warning
from hostprep.staging.target.logout import logout_warning
from hostprep.staging.target.strangers import shared_records_warning, stranger_warning
from hostprep.volumes.budget import budget_warnings


def cautions(plan: StagePlan) -> tuple[str, ...]:
    """Return what to know of the source, the target and the memory; of a volume, its plan tells."""
    request = plan.request
    parent, admits = request.parent, admission_warning(request.source)
    if plan.volume is not None:
        return tuple(filter(None, (admits,)))
    shared = shared_records_warning(request.name, request.target)
    others = (stranger_warning(parent), logout_warning(parent, plan.owners), shared, admits)
    return (*budget_warnings(plan.budget, forced=request.force), *filter(None, others))
