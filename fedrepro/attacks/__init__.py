"""What an honest-but-curious party can rebuild from what it receives, one file per paper."""
