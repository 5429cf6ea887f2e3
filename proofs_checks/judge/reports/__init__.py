"""The same report as Markdown, JUnit XML and HTML; JSON and the terminal are next door."""
