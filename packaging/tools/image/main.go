// Command image writes a container image with the commands of a folder, without a daemon
// and without a registry:
//
//	image -o FILE.tar -arch amd64 -version V [-base ROOT.tar] DIR
//
// The file is an OCI layout in a tar, with the manifest of docker save beside it, so that
// `docker load`, `podman load` and tools for OCI layouts read it. The commands are below
// /usr/local/bin; -base is the root file system below them, by default an empty one. All
// times are SOURCE_DATE_EPOCH.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	bin  = "usr/local/bin/"
	user = 65532 // The user of most images without root.
)

func main() {
	out := flag.String("o", "", "the image's file")
	arch := flag.String("arch", "", "the architecture of the commands")
	version := flag.String("version", "", "the version of ferry")
	base := flag.String("base", "", "a root file system as a tar")
	flag.Parse()
	if err := write(*out, *arch, *version, *base, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, arch, version, base, dir string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	epoch := time.Unix(seconds, 0).UTC()
	commands, err := commandLayer(dir, epoch)
	if err != nil {
		return err
	}
	var layers []v1.Layer
	if base != "" {
		root, err := tarball.LayerFromFile(base, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return fmt.Errorf("%s: %w", base, err)
		}
		layers = append(layers, root)
	}
	cmd, err := defaultCommand(dir)
	if err != nil {
		return err
	}
	img, err := assemble(append(layers, commands), arch, version, cmd, epoch)
	if err != nil {
		return err
	}
	return save(out, img, "ferry:"+tag(version), epoch)
}

// commandLayer returns a layer with the files of dir below bin, and with the writable
// folders of a user without rights.
func commandLayer(dir string, epoch time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := []tar.Header{
		{Name: "usr/", Mode: 0o755}, {Name: "usr/local/", Mode: 0o755}, {Name: bin, Mode: 0o755},
		{Name: "tmp/", Mode: 0o1777}, {Name: "work/", Mode: 0o755, Uid: user, Gid: user},
	}
	for _, h := range folders {
		h.Typeflag, h.ModTime = tar.TypeDir, epoch
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := addFile(w, filepath.Join(dir, e.Name()), tar.Header{Name: bin + e.Name(), Mode: 0o755, ModTime: epoch}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

func addFile(w *tar.Writer, path string, h tar.Header) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// defaultCommand returns arguments of ferry that run the first other program in dir, or none.
func defaultCommand(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "ferry" {
			return []string{"run", "-n", "2", "--tag-output", e.Name()}, nil
		}
	}
	return nil, err
}

// assemble returns the image of the layers, which are in order from the lowest. It starts
// ferry with the arguments cmd, as a user without rights.
func assemble(layers []v1.Layer, arch, version string, cmd []string, epoch time.Time) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: epoch}
	for i := range file.History {
		file.History[i].Created = v1.Time{Time: epoch}
	}
	file.Config = v1.Config{
		Entrypoint: []string{"/" + bin + "ferry"},
		Cmd:        cmd,
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		User:       fmt.Sprintf("%d:%d", user, user),
		WorkingDir: "/work",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "ferry",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.source":   "https://github.com/ferrympi/ferry",
			"org.opencontainers.image.licenses": "BSD-3-Clause",
		},
	}
	return mutate.ConfigFile(img, file)
}

// tag returns the version as a tag, which can have no plus sign.
func tag(version string) string {
	return string(bytes.ReplaceAll([]byte(version), []byte("+"), []byte("-")))
}

// save writes the image as one file.
func save(out string, img v1.Image, name string, epoch time.Time) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})); err != nil {
		return err
	}
	manifest, err := dockerManifest(img, name)
	if err != nil {
		return err
	}
	if err := path.WriteFile("manifest.json", manifest, 0o644); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(w, path, tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, ModTime: epoch})
	})
	if err != nil {
		f.Close()
		return err
	}
	if err := w.Close(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// dockerManifest returns the file manifest.json of docker save, whose paths are the blobs of
// the layout.
func dockerManifest(img v1.Image, name string) ([]byte, error) {
	m, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	layers := make([]string, len(m.Layers))
	for i, l := range m.Layers {
		layers[i] = blob(l.Digest)
	}
	return json.Marshal([]map[string]any{{"Config": blob(m.Config.Digest), "RepoTags": []string{name}, "Layers": layers}})
}
