"""One file per numbered statement of the papers, each with hypotheses, left, right, check and tight_instance."""
