"""The build; metadata is in pyproject.toml."""

from setuptools import setup

setup()
