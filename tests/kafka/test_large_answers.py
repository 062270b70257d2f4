"""An answer that is too large to be copied is the same bytes as one that is not."""

import pytest

from dray.servers.kafka.codec import encode
from dray.servers.kafka.exchanges import framed
from dray.servers.kafka.messages.describe_configs import (
    SCHEMA,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    write_describe_configs_result,
)


@pytest.mark.parametrize("count", [0, 1, 10, 40])
@pytest.mark.parametrize("version", [3, 4])
def test_an_answer_of_elements_is_framed_with_its_length_and_none_is_copied_that_is_large(count, version):
    told = [DescribeConfigsResult(error_message="x" * 30_000, resource_name=str(number)) for number in range(count)]
    written = [write_describe_configs_result(version, one) for one in told]
    whole = b"".join(encode(SCHEMA.response.write[version], DescribeConfigsResponse(results=told)))
    parts = framed([b"head"], encode(SCHEMA.response.write[version], DescribeConfigsResponse(results=written)))
    assert b"".join(parts) == (len(whole) + 4).to_bytes(4) + b"head" + whole
    assert all(any(part is one for part in parts) for one in written) == (count in (0, 40))
