"""Metrics about the folds of a service, such as their distance from the head of the log, from its metrics page."""

from http.client import HTTPException
from typing import Final

from koordctl.access.clients import ask

LAG: Final = "koord_bus_follower_lag_events"
LAG_SECONDS: Final = "koord_bus_follower_lag_seconds"
HALTED: Final = "koord_bus_follower_halted"


def fold_figures(url: str, label: str = "fold") -> dict[str, dict[str, float]] | None:
    """Return metric -> value of a label -> value of the metric, for the metrics of a service that have this label.

    None if the service does not answer.

    Args:
        url: Base URL of the service.
        label: Name of the label. The default is `fold`, whose values are the names of folds.
    """
    from prometheus_client.parser import text_string_to_metric_families

    try:
        page = ask(f"{url}/metrics", timeout=5).text
    except (OSError, HTTPException, ValueError):  # a certificate that is not trusted is a ValueError, too
        return None
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if label in sample.labels:
                found.setdefault(sample.name, {})[sample.labels[label]] = sample.value
    return found
