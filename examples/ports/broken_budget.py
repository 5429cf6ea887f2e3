"""Wrong on purpose: the sink and the most recent page are kept on top of the budget, not inside it."""

from numpy_port import *  # noqa: F403
from numpy_port import locks_select_pages as right_select


def locks_select_pages(*, shares, budget_tokens, page_size):
    return right_select(shares=shares, budget_tokens=budget_tokens + 2 * page_size, page_size=page_size)
