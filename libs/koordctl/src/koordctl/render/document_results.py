"""The manager's results for documents: warnings and refusals, on standard error."""

from collections.abc import Mapping
from typing import Any, Final

from koordctl.render.output import errors

_NOT_DONE: Final = ("refused", "failed", "not-found")


def is_refused(result: Mapping[str, Any]) -> bool:
    """Return whether the document was not applied or deleted: the manager refused it, it failed, or was not found.

    Args:
        result: One result of the manager.
    """
    return result["action"] in _NOT_DONE


def show_remarks(result: Mapping[str, Any], mark: str = "") -> str:
    """Print the warnings of one document and, if it was refused, every reason with field, rule and value.

    Args:
        result: One result of the manager.
        mark: Text after the action, for example " (dry run)".

    Returns:
        The document's name for people, such as "pod/web in default".
    """
    where = f"{result.get('kind', '').lower() or 'document'}/{result.get('name', '?')}"
    if result.get("namespace"):
        where += f" in {result['namespace']}"
    for warning in result.get("warnings", []):
        errors.print(f"Warning: {where}: {warning}", highlight=False, markup=False)
    if not is_refused(result):
        return where
    errors.print(f"{where} {result['action'].replace('-', ' ')}{mark}", highlight=False, markup=False)
    from koord_manager.domain.documents.admitting import WITHIN_RULE

    for error in result.get("errors", []):
        if error["rule"].startswith(WITHIN_RULE):
            sentence = f"  {error['value']} ({error['rule'].removeprefix(WITHIN_RULE)})"
            errors.print(sentence, highlight=False, markup=False)
            continue
        place = f"{error['field']}: " if error["field"] else ""
        value = f", got {error['value']}" if error["value"] else ""
        rule = error["rule"] if not error["field"] else f"must be {error['rule']}"
        errors.print(f"  {place}{rule}{value}", highlight=False, markup=False)
    return where
