"""What differs between two reports: `differences.compare` makes data of it, `text.lines` the text."""
