// Package deploy has the tests of the files in this folder, which parse each file and run each command of
// ferry in them, with a program without effects. They need neither containers nor
// a cluster.
package deploy

import (
	"encoding/json"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
)

// program stands for the programs that the files start.
func program() {}

func TestMain(m *testing.M) {
	ferrytest.Main(m, map[string]func(){"program": program, "ring": program})
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// accepted runs an unchanged command of ferry, except for the
// length of a benchmark. Its first word may be a path.
func accepted(t *testing.T, where string, words ...string) {
	t.Helper()
	words = slices.Clone(words)
	for i, w := range words {
		switch w { // where deployments have them
		case "/usr/local/bin/ferry", "/usr/local/bin/program", "./program":
			words[i] = filepath.Base(w)
		}
	}
	if len(words) > 2 && words[1] == "bench" {
		words = append(words, "-m", "8:8", "-i", "10", "-x", "1")
	}
	if words[0] != "ferry" {
		t.Errorf("%s: %q is not a command of ferry", where, words)
		return
	}
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", where, strings.Join(words, " "), err, out)
	}
}

// instructions are a Dockerfile's, with continued lines joined, in order.
func instructions(text string) (all [][2]string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		all = append(all, [2]string{word, strings.TrimSpace(rest)})
	}
	return all
}

// image returns the ENTRYPOINT and the CMD of the Dockerfile.
func image(t *testing.T) (entrypoint, cmd []string) {
	t.Helper()
	for _, in := range instructions(read(t, "Dockerfile")) {
		to := map[string]*[]string{"ENTRYPOINT": &entrypoint, "CMD": &cmd}[in[0]]
		if to == nil {
			continue
		}
		if err := json.Unmarshal([]byte(in[1]), to); err != nil {
			t.Fatalf("Dockerfile: %s is not in the exec form, and signals would not reach ferry: %v", in[0], err)
		}
	}
	return entrypoint, cmd
}

func TestDockerfile_BuildsAndStartsProgram(t *testing.T) {
	known := []string{"FROM", "WORKDIR", "ARG", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}
	stages, built := []string{}, map[string]bool{}
	for _, in := range instructions(read(t, "Dockerfile")) {
		words := strings.Fields(in[1])
		switch {
		case !slices.Contains(known, in[0]):
			t.Errorf("Dockerfile: %s: not an instruction that this test knows", in[0])
		case in[0] == "FROM":
			stages = append(stages, words[len(words)-1])
		case in[0] == "COPY" && strings.HasPrefix(words[0], "--from="):
			if from := strings.TrimPrefix(words[0], "--from="); !slices.Contains(stages[:len(stages)-1], from) {
				t.Errorf("Dockerfile: no earlier stage %s in %q", from, stages)
			}
		case in[0] == "COPY":
			for _, w := range words[:len(words)-1] {
				if _, err := os.Stat(filepath.Join("../..", w)); err != nil {
					t.Errorf("Dockerfile: COPY: %v", err)
				}
			}
		case in[0] == "RUN" && strings.Contains(in[1], "go build"):
			for _, w := range words {
				if !strings.HasPrefix(w, "./") {
					continue
				}
				p, err := build.ImportDir(filepath.Join("../..", w), 0)
				if err != nil || p.Name != "main" {
					t.Errorf("Dockerfile: %s is not a program: %v", w, err)
				}
				built[filepath.Base(w)] = true
			}
		case in[0] == "USER" && (words[0] == "root" || strings.HasPrefix(words[0], "0")):
			t.Error("Dockerfile: ferry needs no root")
		}
	}
	entrypoint, cmd := image(t)
	if len(entrypoint) != 1 || len(cmd) == 0 || !built[entrypoint[0]] || !built[cmd[len(cmd)-1]] {
		t.Fatalf("Dockerfile: it builds %v, and starts %q %q", built, entrypoint, cmd)
	}
	accepted(t, "Dockerfile", append(entrypoint, cmd...)...)
}

// TestDockerignore_TrackedFiles_AreNotIgnored checks that the image is built from all sources, and from no program.
func TestDockerignore_TrackedFiles_AreNotIgnored(t *testing.T) {
	patterns := strings.Fields(read(t, "../../.dockerignore"))
	if !slices.Contains(patterns, "bin") || !slices.Contains(patterns, ".git") {
		t.Errorf(".dockerignore: %q", patterns)
	}
	for _, p := range patterns {
		cmd := exec.CommandContext(t.Context(), "git", "ls-files", "--", ":(glob)"+p, ":(glob)"+p+"/**")
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("no git checkout: %v", err)
		}
		if len(out) > 0 {
			t.Errorf(".dockerignore: %s leaves out %s", p, out)
		}
	}
}

// job is as much of a Kubernetes Job as kubernetes.yaml uses. Another field, or a field at
// another place, is an error.
type job struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		BackoffLimit          *int `yaml:"backoffLimit"`
		ActiveDeadlineSeconds int  `yaml:"activeDeadlineSeconds"`
		Template              struct {
			Spec struct {
				RestartPolicy                 string         `yaml:"restartPolicy"`
				EnableServiceLinks            *bool          `yaml:"enableServiceLinks"`
				TerminationGracePeriodSeconds int            `yaml:"terminationGracePeriodSeconds"`
				SecurityContext               map[string]any `yaml:"securityContext"`
				Containers                    []struct {
					Name, Image     string
					ImagePullPolicy string `yaml:"imagePullPolicy"`
					Command, Args   []string
					Resources       struct{ Requests, Limits map[string]string }
					SecurityContext map[string]any `yaml:"securityContext"`
					VolumeMounts    []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
				Volumes []struct {
					Name     string
					EmptyDir *struct {
						Medium    string
						SizeLimit string `yaml:"sizeLimit"`
					} `yaml:"emptyDir"`
				}
			}
		}
	}
}

func TestKubernetes_Job_HasMemoryForRanks(t *testing.T) {
	var j job
	dec := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes.yaml")))
	dec.KnownFields(true)
	if err := dec.Decode(&j); err != nil {
		t.Fatal("kubernetes.yaml: ", err)
	}
	pod := j.Spec.Template.Spec
	if j.Kind != "Job" || j.APIVersion != "batch/v1" || pod.RestartPolicy != "Never" || j.Spec.BackoffLimit == nil || pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Errorf("kubernetes.yaml: %+v", j)
	}
	if len(pod.Containers) != 1 {
		t.Fatalf("kubernetes.yaml: %d containers", len(pod.Containers))
	}
	c := pod.Containers[0]
	medium := map[string]string{}
	for _, v := range pod.Volumes {
		if v.EmptyDir == nil {
			t.Errorf("kubernetes.yaml: volume %s is not an emptyDir", v.Name)
			continue
		}
		medium[v.Name] = v.EmptyDir.Medium
	}
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		kind, ok := medium[m.Name]
		if !ok {
			t.Errorf("kubernetes.yaml: there is no volume %s", m.Name)
		}
		mounts[m.MountPath] = kind
	}
	if kind, ok := mounts["/dev/shm"]; !ok || kind != "Memory" {
		t.Errorf("kubernetes.yaml: /dev/shm: %v", mounts)
	}
	if _, ok := mounts["/tmp"]; !ok {
		t.Errorf("kubernetes.yaml: the root is read-only, and nothing is at /tmp: %v", mounts)
	}
	if n := slices.Index(c.Args, "-n"); n < 0 || c.Args[n+1] != c.Resources.Limits["cpu"] {
		t.Errorf("kubernetes.yaml: %q with %v", c.Args, c.Resources)
	}
	if c.Resources.Requests["cpu"] != c.Resources.Limits["cpu"] {
		t.Errorf("kubernetes.yaml: %v", c.Resources)
	}
	accepted(t, "kubernetes.yaml", append(c.Command, c.Args...)...)
}

func TestSystemd_Unit_StartsRanks(t *testing.T) {
	known := map[string]string{
		"[Unit]":    " Description After Wants ",
		"[Service]": " Type User Group RuntimeDirectory RuntimeDirectoryMode Environment ExecStart KillMode TimeoutStopSec SuccessExitStatus Restart RestartSec RestartPreventExitStatus LimitNOFILE LimitMEMLOCK NoNewPrivileges PrivateTmp ",
		"[Install]": " WantedBy ",
	}
	section, values := "", map[string]string{}
	for line := range strings.Lines(read(t, "ferry-job.service")) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			if section = line; known[section] == "" {
				t.Errorf("ferry-job.service: %s", line)
			}
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || !strings.Contains(known[section], " "+key+" ") {
				t.Errorf("ferry-job.service: %s: %s", section, line)
			}
			values[key] = value
		}
	}
	if values["Environment"] != "XDG_RUNTIME_DIR=/run/"+values["RuntimeDirectory"] {
		t.Errorf("ferry-job.service: %s, and the runtime directory is %s", values["Environment"], values["RuntimeDirectory"])
	}
	accepted(t, "ferry-job.service", strings.Fields(values["ExecStart"])...)
}

func TestSlurm_Script_IsValid(t *testing.T) {
	text := read(t, "slurm.sbatch")
	if out, err := exec.Command("sh", "-n", "slurm.sbatch").CombinedOutput(); err != nil {
		t.Errorf("slurm.sbatch: %v\n%s", err, out)
	}
	var ntasks, commands int
	directive := regexp.MustCompile(`^#SBATCH --[a-z-]+=\S+$`)
	for i, line := range strings.Split(text, "\n") {
		switch {
		case i == 0 && line != "#!/bin/sh":
			t.Errorf("slurm.sbatch: sbatch wants an interpreter in the first line: %s", line)
		case strings.HasPrefix(line, "#SBATCH"):
			if commands > 0 || !directive.MatchString(line) {
				t.Errorf("slurm.sbatch: sbatch would not heed %s", line)
			}
			if strings.HasPrefix(line, "#SBATCH --ntasks=") {
				ntasks++
			}
		case strings.HasPrefix(line, "srun ") && (!strings.Contains(line, " --mpi=pmi") || !strings.HasSuffix(line, ` "$@"`)):
			t.Errorf("slurm.sbatch: ranks could not meet: %s", line)
		case strings.HasPrefix(line, "#   ferry "):
			line = strings.NewReplacer(`"$SLURM_NTASKS"`, "4", `"$@"`, "program").Replace(strings.TrimLeft(line, "# "))
			accepted(t, "slurm.sbatch", strings.Fields(line)...)
		}
		if line != "" && line[0] != '#' {
			commands++
		}
	}
	if ntasks != 1 {
		t.Errorf("slurm.sbatch: %d times --ntasks", ntasks)
	}
}

// Commands of the pages must name existing files, and commands that ferry accepts.
func TestCommands_OfDeployPages_AreAccepted(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) != 4 {
		t.Fatalf("%q, %v", pages, err)
	}
	entrypoint, cmd := image(t)
	file := regexp.MustCompile(`docs/deploy/\S+`)
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	for _, page := range pages {
		text, ran := read(t, page), 0
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		for line := range strings.Lines(text) {
			line, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if !ok {
				continue
			}
			for _, name := range file.FindAllString(line, -1) {
				if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
					t.Errorf("%s: %s: %v", page, line, err)
				}
			}
			words := strings.Fields(line)
			var run []string
			if words[0] == "docker" && words[1] == "run" {
				at := max(slices.Index(words, "ferry-job"), slices.Index(words, "ferry-fabrics"))
				if at < 0 {
					t.Errorf("%s: another image: %s", page, line)
					continue
				}
				run = append(run, entrypoint...)
				if rest := words[at+1:]; len(rest) > 0 {
					run = append(run, rest...)
				} else {
					run = append(run, cmd...)
				}
			} else if at := slices.Index(words, "ferry"); at >= 0 && words[0] != "sudo" {
				run = words[at:]
			}
			if run != nil {
				accepted(t, page+": "+line, run...)
				ran++
			}
		}
		if ran == 0 && page != "systemd.md" { // The unit of systemd.md has the command.
			t.Errorf("%s: no command of ferry", page)
		}
	}
}
