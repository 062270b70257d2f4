"""Objects in memory: the contract."""

import pytest

from dray.objects.memory import MemoryObjects
from tests.objects.contract import ObjectsContract


class TestMemory(ObjectsContract):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects()
