"""The build; metadata is in pyproject.toml.

The extension is optional: without a compiler the install succeeds and the
pure-Python twin serves. `tools/check_extension.py` tells which one was built.
"""

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
        )
    ]
)
