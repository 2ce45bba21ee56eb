"""Make the data behind ``pytest --qnn-explain`` and the pages in docs/rules/.

``python -m tools.explain.cases`` makes the smallest violations, ``python -m tools.explain.facts`` what is
known of each rule (mutants, personalities), ``python -m tools.explain.libraries`` what public libraries do,
and ``python -m tools.explain.pages`` the pages.
"""
