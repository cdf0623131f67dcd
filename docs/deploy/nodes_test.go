package deploy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/test/nettest"
)

// indexedJob has the fields of kubernetes-nodes.yaml that its pods depend on.
type indexedJob struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]string
		CompletionMode           string `yaml:"completionMode"`
		Completions, Parallelism int
		Template                 struct {
			Spec struct {
				Subdomain  string
				Containers []struct {
					Command, Args []string
					Env           []struct{ Name, Value string }
					Resources     struct{ Limits map[string]string }
				}
			}
		}
	}
}

// documents returns the Service and the Job of kubernetes-nodes.yaml.
func documents(t *testing.T) (service, job indexedJob) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes-nodes.yaml")))
	if err := errors.Join(decoder.Decode(&service), decoder.Decode(&job)); err != nil {
		t.Fatal("kubernetes-nodes.yaml: ", err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Fatalf("kubernetes-nodes.yaml: more than two documents: %v", err)
	}
	if service.Kind != "Service" || job.Kind != "Job" || len(job.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("kubernetes-nodes.yaml: %+v, %+v", service, job)
	}
	return service, job
}

func TestKubernetesNodes_Names_FitTheService(t *testing.T) {
	service, job := documents(t)
	name := service.Metadata.Name
	if service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses || service.Spec.Selector["job-name"] != job.Metadata.Name {
		t.Errorf("the pods have no names before they are ready: %+v", service.Spec)
	}
	pod := job.Spec.Template.Spec
	if job.Metadata.Name != name || pod.Subdomain != name || job.Spec.CompletionMode != "Indexed" || job.Spec.Completions != job.Spec.Parallelism {
		t.Errorf("the pods are not %s-INDEX.%s, all at a time: %+v", name, name, job)
	}
	ranks := pod.Containers[0]
	for _, v := range ranks.Env {
		switch want := map[string]string{"NODES": fmt.Sprint(job.Spec.Completions), "RANKS": ranks.Resources.Limits["cpu"]}[v.Name]; {
		case want != "" && v.Value != want:
			t.Errorf("%s is %s, and the Job has %s", v.Name, v.Value, want)
		}
	}
}

// TestKubernetesNodes_TwoPods_RanksMeet runs the script of the two pods in two network namespaces, with a benchmark as the program.
func TestKubernetesNodes_TwoPods_RanksMeet(t *testing.T) {
	needs.Root(t, "make network namespaces")
	needs.Program(t, "mpiexec.hydra", "mpich")
	_, job := documents(t)
	hosts := nettest.New(t)
	names := filepath.Join(t.TempDir(), "hosts")
	var table strings.Builder
	fmt.Fprintln(&table, "127.0.0.1 localhost")
	for i := range 2 {
		fmt.Fprintf(&table, "%s ferry-nodes-%d.ferry-nodes ferry-nodes-%d\n", hosts.Addr(i, 0), i, i)
	}
	if err := os.WriteFile(names, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	container := job.Spec.Template.Spec.Containers[0]
	program := slices.Index(container.Args, "ring")
	if program < 0 {
		t.Fatalf("kubernetes-nodes.yaml: no program ring: %q", container.Args)
	}
	args := append(slices.Clone(container.Args[:program]), "ferry", "bench", "barrier", "-i", "10", "-x", "1", "--format", "csv")
	var outputs [2]strings.Builder
	var pods sync.WaitGroup
	for i := range 2 {
		// As in a pod, the name of the host and its table of names are its own.
		line := slices.Concat([]string{"unshare", "--mount", "--uts", "sh", "-eu", "-c",
			`mount --bind "$1" /etc/hosts; hostname "$2"; shift 2; exec "$@"`, "sh", names, fmt.Sprintf("ferry-nodes-%d", i)},
			container.Command, args)
		cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.Env = append(os.Environ(), fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i), "XDG_CONFIG_HOME="+t.TempDir())
		for _, v := range container.Env {
			cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
		}
		if err := hosts.On(i, cmd.Start); err != nil {
			t.Fatal(err)
		}
		pods.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("pod %d: %v", i, err)
			}
		})
	}
	pods.Wait()
	if line := "barrier,0,4,us,"; !strings.Contains(outputs[0].String(), line) {
		t.Errorf("pod 0 does not print %q", line)
	}
	if t.Failed() {
		t.Logf("pod 0:\n%s\npod 1:\n%s", outputs[0].String(), outputs[1].String())
	}
}
