"""The build; metadata is in pyproject.toml.

The extension is optional: without a compiler the install succeeds and the
pure-Python twin serves. `tools/check_extension.py` tells which one was built.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  pip of an older Python comes here before it reads requires-python
    sys.exit("dray needs Python 3.11 or newer, and this is %s: %s" % (sys.version.split()[0], sys.executable))  # noqa: UP031

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "dray.records._kernel",
            sources=[
                "src/dray/records/_kernelmodule.c",
                "src/dray/records/kernel.c",
                "src/dray/records/request.c",
            ],
            depends=["src/dray/records/kernel.h"],
            extra_compile_args=["-O3", "-Wall", "-Wextra"],
            optional=True,
        ),
        Extension(
            "dray.machine._kernel",
            sources=["src/dray/machine/_kernelmodule.c"],
            extra_compile_args=["-O3", "-Wall", "-Wextra"],
            optional=True,
        ),
        Extension(
            "dray.machine.heaps._kernel",
            sources=[
                "src/dray/machine/heaps/_kernelmodule.c",
                "src/dray/machine/heaps/order.c",
                "src/dray/machine/heaps/runs.c",
            ],
            depends=["src/dray/machine/heaps/kernel.h"],
            extra_compile_args=["-O3", "-Wall", "-Wextra"],
            optional=True,
        ),
    ]
)
