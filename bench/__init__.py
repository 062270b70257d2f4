"""Speed, measured against peers; `python -m bench`."""
