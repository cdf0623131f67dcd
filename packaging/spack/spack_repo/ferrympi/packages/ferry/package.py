from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Ferry(MakefilePackage):
    """Message passing for Go with MPI-4 Sessions semantics, and the command
    that starts programs on several ranks, shows their transports and measures
    them."""

    homepage = "https://github.com/ferrympi/ferry"
    git = "https://github.com/ferrympi/ferry.git"

    license("BSD-3-Clause")

    sanity_check_is_file = ["bin/ferry"]

    version("main", branch="main")

    variant("libfabric", default=False, description="Load libfabric at run time")
    variant("ucx", default=False, description="Load UCX at run time")

    # cgo, which loads the C libraries.
    depends_on("c", type="build")
    depends_on("go@1.26:", type="build")
    depends_on("gmake", type="build")
    depends_on("libfabric@1.17:", type="run", when="+libfabric")
    depends_on("ucx", type="run", when="+ucx")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # The modules are in the stage, which Spack can remove only if they are writable.
        env.append_flags("GOFLAGS", "-modcacherw")
        env.set("CGO_ENABLED", "1")

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        for library in ("libfabric", "ucx"):
            if self.spec.satisfies(f"+{library}"):
                for directory in self.spec[library].libs.directories:
                    env.prepend_path("LD_LIBRARY_PATH", directory)

    def build(self, spec, prefix):
        make("build")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}")
