"""The report as one self-contained page: `render.page` writes it, `view` says what stands on it."""
