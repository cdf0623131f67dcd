package packaging

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/ferrympi/ferry/internal/needs"
)

// goVersion returns the Go that the module requires, as major.minor.
func goVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.ParseLax("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	major, rest, _ := strings.Cut(mod.Go.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

func TestDevcontainer_Files_BuildWithTheModulesGo(t *testing.T) {
	text, err := os.ReadFile("../.devcontainer/devcontainer.json")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Name              string
		Build             struct{ Dockerfile string }
		PostCreateCommand string
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	dockerfile, err := os.ReadFile(filepath.Join("../.devcontainer", c.Build.Dockerfile))
	if err != nil {
		t.Fatal(err)
	}
	if want := "FROM golang:" + goVersion(t) + "-"; !strings.Contains(string(dockerfile), want) {
		t.Errorf("%s has no line %s", c.Build.Dockerfile, want)
	}
	run(t, "..", "make", append([]string{"-n"}, strings.Fields(c.PostCreateCommand)[1:]...)...)
}

// recipe is below spack_repo and the namespace, as API version 2 of Spack's packages requires.
const recipe = "spack/spack_repo/ferrympi/packages/ferry/package.py"

// spack is a program with stubs of the parts of Spack that the recipe uses. It prints their calls.
const spack = `
import sys, types
calls = []
def record(name):
    return lambda *args, **named: calls.append((name, args, named))
package = types.ModuleType("spack.package")
for name in ("version", "variant", "depends_on", "license", "make"):
    setattr(package, name, record(name))
package.EnvironmentModifications = object
makefile = types.ModuleType("makefile")
makefile.MakefilePackage = object
sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": package,
    "spack_repo": package, "spack_repo.builtin": package, "spack_repo.builtin.build_systems": package,
    "spack_repo.builtin.build_systems.makefile": makefile})
namespace = {}
exec(compile(open(sys.argv[1]).read(), "package.py", "exec"), namespace)
ferry = namespace["Ferry"]()
class Spec(dict):
    def satisfies(self, constraint):
        return constraint == "+ucx"
class Library:
    libs = types.SimpleNamespace(directories=["/ucx/lib"])
ferry.spec = Spec(ucx=Library)
env = types.SimpleNamespace(set=record("set"), append_flags=record("append_flags"), prepend_path=record("prepend_path"))
ferry.setup_build_environment(env)
ferry.setup_run_environment(env)
ferry.build(None, "/prefix")
ferry.install(None, "/prefix")
for name, args, named in calls:
    print(name, *args, *sorted(named.items()))
`

func TestSpackRecipe_Stubs_BuildsAndInstalls(t *testing.T) {
	python := needs.Program(t, "python3", "python3")
	text, err := os.ReadFile(recipe) // so that go test runs again after a change
	if err != nil || !strings.HasPrefix(string(text), "from spack_repo.") {
		t.Fatalf("package.py: %v", err)
	}
	got := run(t, ".", python, "-c", spack, recipe)
	for _, want := range []string{"depends_on go@" + goVersion(t) + ": ('type', 'build')", "make build", "make install PREFIX=/prefix", "variant ucx", "prepend_path LD_LIBRARY_PATH /ucx/lib"} {
		if !strings.Contains("\n"+got, "\n"+want) {
			t.Errorf("the recipe calls no %q:\n%s", want, got)
		}
	}
}
