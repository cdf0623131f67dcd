package packaging

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// image is an image in an OCI layout, and the root file system that it unpacks to.
type image struct {
	root, layout string
	config       struct {
		Architecture, OS string
		Config           struct {
			User            string
			Entrypoint, Cmd []string
		}
	}
}

type descriptor struct{ MediaType, Digest string }

// unpack reads the image in a file, and unpacks its layers.
func unpack(t *testing.T, file string) (i image) {
	t.Helper()
	i.root, i.layout = t.TempDir(), t.TempDir()
	run(t, i.layout, "tar", "-xf", file)
	var index struct{ Manifests []descriptor }
	i.read(t, "index.json", &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("%d manifests in %s", len(index.Manifests), file)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	i.read(t, i.blob(t, index.Manifests[0]), &manifest)
	i.read(t, i.blob(t, manifest.Config), &i.config)
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	i.read(t, "manifest.json", &docker)
	layers := []string{}
	for _, l := range manifest.Layers {
		layers = append(layers, i.blob(t, l))
		run(t, i.root, "tar", "-xzpf", filepath.Join(i.layout, layers[len(layers)-1]))
	}
	if len(docker) != 1 || docker[0].Config != i.blob(t, manifest.Config) || !slices.Equal(docker[0].Layers, layers) ||
		!slices.Equal(docker[0].RepoTags, []string{"ferry:" + strings.Replace(version, "+", "-", 1)}) {
		t.Errorf("manifest.json has %+v, and index.json layers %q", docker, layers)
	}
	return i
}

func (i image) read(t *testing.T, name string, v any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(i.layout, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// blob returns the name of a file whose digest is right.
func (i image) blob(t *testing.T, d descriptor) string {
	t.Helper()
	algorithm, sum, _ := strings.Cut(d.Digest, ":")
	name := filepath.Join("blobs", algorithm, sum)
	b, err := os.ReadFile(filepath.Join(i.layout, name))
	if err != nil {
		t.Fatal(err)
	}
	if got := sha256.Sum256(b); hex.EncodeToString(got[:]) != sum || !strings.HasPrefix(d.MediaType, "application/vnd.oci.image.") {
		t.Errorf("%s: another digest, or the media type %s", name, d.MediaType)
	}
	return name
}

// start runs a command of the image's in its root, as its user.
func (i image) start(t *testing.T, command ...string) string {
	t.Helper()
	return enter(t, i.root, i.config.Config.User, command...)
}

func TestImage_WithoutLibraries_RunsInEmptyRoot(t *testing.T) {
	needs.Time(t)
	needs.Root(t, "enter another root")
	dir := compiled(t, false)
	file := run(t, "..", "scripts/image", dir, filepath.Join(t.TempDir(), "image.tar"))
	again := run(t, "..", "scripts/image", dir, filepath.Join(t.TempDir(), "image.tar"))
	one, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := os.ReadFile(again); err != nil || !bytes.Equal(one, other) {
		t.Errorf("two images of the same commands differ: %v", err)
	}
	i := unpack(t, file)
	want := []string{"tmp/", "usr/", "usr/local/", "usr/local/bin/", "usr/local/bin/ferry", "usr/local/bin/hello", "work/"}
	if got := listing(t, i.root); !slices.Equal(got, want) {
		t.Errorf("the image contains %q, not %q", got, want)
	}
	i.check(t)
}

// check runs the commands that every image has.
func (i image) check(t *testing.T) {
	t.Helper()
	c := i.config.Config
	if i.config.OS != "linux" || i.config.Architecture == "" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/ferry"}) {
		t.Errorf("the configuration is %+v", i.config)
	}
	if got := i.start(t, append(slices.Clone(c.Entrypoint), c.Cmd...)...); !strings.Contains(got, "rank 0 of 2") || !strings.Contains(got, "rank 1 of 2") {
		t.Errorf("the image's own command prints\n%s", got)
	}
	if got := i.start(t, "ferry", "version"); got != "ferry version "+version {
		t.Errorf("ferry version prints %q", got)
	}
	if got := i.start(t, "ferry", "run", "-n", "2", "ferry", "conform"); !strings.Contains(got, "pass ") {
		t.Errorf("ferry conform prints\n%s", got)
	}
}

func TestImage_Libraries_TransportsAreUsable(t *testing.T) {
	needs.Time(t)
	needs.Root(t, "make another Debian")
	i := unpack(t, run(t, "..", "scripts/image", compiled(t, true), filepath.Join(t.TempDir(), "image.tar"), debianRoot(t)))
	i.check(t)
	for _, path := range []string{"etc/apt/sources.list", "etc/hostname", "etc/resolv.conf", "dev/null"} { // of the machine that made the image
		if _, err := os.Lstat(filepath.Join(i.root, path)); err == nil {
			t.Errorf("the image contains %s", path)
		}
	}
	for _, mtl := range []string{"ofi", "ucx"} {
		i.start(t, "ferry", "run", "-n", "2", "--set", "mtl="+mtl, "hello")
	}
}
