"""What a port of the dialect locks-kv-0.1.4 is judged by: rows of the stage table, cases, and what departing costs."""
