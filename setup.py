"""What pyproject.toml cannot say: the C extension, whose include path depends on the interpreter, and the folders that
are installed as subpackages."""
import sysconfig
from glob import glob

from setuptools import Extension, find_packages, setup

# Bare top-level packages named `guards` and `backends` would collide with users' own folders of those names.
MAPPED = find_packages(".", include=["guards", "guards.*", "backends", "backends.*"])

include = sysconfig.get_paths()["include"]

setup(
    packages=find_packages(".", include=["framejit", "framejit.*"]) + [f"framejit.{name}" for name in MAPPED],
    include_package_data=False,  # else the C sources, which the sdist holds, would be installed too
    package_dir={f"framejit.{name}": name.replace(".", "/") for name in MAPPED},
    ext_modules=[
        Extension(
            "framejit._native",
            sources=sorted(glob("framejit/native/**/*.c", recursive=True)),
            depends=sorted(glob("framejit/native/**/*.h", recursive=True)),
            include_dirs=["framejit/native", f"{include}/internal"],
            extra_compile_args=[
                "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers",
            ],
            libraries=["dl"],
        )
    ],
)
