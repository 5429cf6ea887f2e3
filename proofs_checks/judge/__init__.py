"""The stage table, the cases, the judge, the runner and the reports."""
