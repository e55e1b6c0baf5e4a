"""Warnings about a run that is allowed, for ``stage`` and ``plan`` to show before it."""

from __future__ import annotations

from hostprep.staging.planning import StagePlan
from hostprep.staging.source.opening import admission_warning
from hostprep.staging.target.logout import logout_warning
from hostprep.staging.target.strangers import shared_records_warning, stranger_warning
from hostprep.volumes.budget import budget_warnings


def cautions(plan: StagePlan) -> tuple[str, ...]:
    """Return warnings about the source, the target and the memory; a volume's plan has its own."""
    request = plan.request
    parent, admits = request.parent, admission_warning(request.source)
    if plan.volume is not None:
        return tuple(filter(None, (admits,)))
    shared = shared_records_warning(request.name, request.target)
    others = (stranger_warning(parent), logout_warning(parent, plan.owners), shared, admits)
    return (*budget_warnings(plan.budget, forced=request.force), *filter(None, others))
