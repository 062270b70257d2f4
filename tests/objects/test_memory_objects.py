"""Objects in memory: the contract."""

import pytest
from tests.objects.contract import ObjectsContract

from dray.objects.memory import MemoryObjects


class TestMemory(ObjectsContract):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects()
