"""How QNN's headers name the functions of the interface table."""

from __future__ import annotations


def function_name(entry: str) -> str:
    """What QNN's headers call an entry of the table: ``memDeRegister`` is QnnMem_deRegister."""
    if entry == "globalConfigSet":  # the one group of two words
        return "QnnGlobalConfig_set"
    group = next((at for at, letter in enumerate(entry) if letter.isupper()), len(entry))
    return f"Qnn{entry[:group].capitalize()}_{entry[group : group + 1].lower()}{entry[group + 1 :]}"
