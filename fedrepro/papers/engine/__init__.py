"""The exhibits of the suite itself (EN-*): its own speed, and a user's graph and method."""
