package launched

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

// lookup reads variables from a text such as "A=1 B=2".
func lookup(environ string) Lookup {
	return func(name string) (string, bool) {
		for f := range strings.FieldsSeq(environ) {
			if k, v, _ := strings.Cut(f, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

func TestMultiRankVariable_OneOfSeveral_IsFound(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"", ""},
		{"PMI_SIZE=4 PMI_FD=5", "PMI_SIZE"},
		{"PMI_SIZE=1 PMI_FD=5", ""},
		{"OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0", "OMPI_COMM_WORLD_SIZE"},
		{"OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0", ""},
		{"PMIX_RANK=0", "PMIX_RANK"},
		{"PMI_PORT=host:1", "PMI_PORT"},
		{"PMI_RANK=0", "PMI_RANK"},
		{"PMI_RANK=0 PMI_SIZE=1", ""},
		{"PALS_RANKID=0", "PALS_RANKID"},

		// The launchers are independent.
		{"OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0 PMI_PORT=host:1 PMI_ID=0", "PMI_PORT"},
		{"PMI_SIZE=1 PMI_RANK=0 PMIX_RANK=0", "PMIX_RANK"},
		{"PALS_RANKID=3 PMI_SIZE=many", "PMI_SIZE"},
		{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_RANK"},

		// srun without a PMI.
		{"SLURM_PROCID=1 SLURM_NTASKS=4", "SLURM_PROCID"},
		{"SLURM_PROCID=0 SLURM_NTASKS=4", "SLURM_NTASKS"},
		{"SLURM_PROCID=0", "SLURM_PROCID"},
		{"SLURM_PROCID=0 SLURM_NTASKS=1", ""},
		{"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_TASKS"},
		{"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", ""}, // srun -n 1 in a job of 4
		{"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4", "SLURM_NTASKS"},
		{"SLURM_JOB_ID=7 SLURM_STEP_NUM_TASKS=4 PMI_RANK=0 PMI_SIZE=1", "SLURM_STEP_NUM_TASKS"}, // mpiexec inside srun, or srun inside mpiexec
		{"SLURM_JOB_ID=7 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 PMI_RANK=0 PMI_SIZE=1", ""},
		{"SLURM_JOB_ID=7 SLURM_NTASKS=4", ""},                // salloc's shell
		{"SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0", ""}, // a batch script
		{"SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=2", "SLURM_PROCID"},
	} {
		if got := MultiRankVariable(lookup(c.env)); got != c.want {
			t.Errorf("%q: got %q, want %q", c.env, got, c.want)
		}
	}
}

// Otherwise a rank of ferry run would appear as a rank of the outer launcher.
func TestNamesRank_RankVariables_AreRemovedByFerryRun(t *testing.T) {
	for _, name := range rankVariables {
		if !NamesRank(name) {
			t.Errorf("ranks of ferry run would have %s", name)
		}
		if got := RankVariable(lookup(name + "=1")); got != name {
			t.Errorf("%s: found %q", name, got)
		}
	}
	for _, name := range []string{"SLURM_LOCALID", "PMI_ID", "PMIX_SERVER_URI2", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", PMIxHandOver} {
		if !NamesRank(name) {
			t.Errorf("ranks of ferry run would have %s", name)
		}
	}
	// These apply to a rank's own launchers too.
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_CONF", "OMPI_MCA_btl", "PATH", "FERRY_BTL"} {
		if NamesRank(name) {
			t.Errorf("ranks of ferry run would not have %s", name)
		}
		if got := RankVariable(lookup(name + "=1")); got != "" {
			t.Errorf("%s: found %q", name, got)
		}
	}
}

func TestCheckPMIx_PartOfVariables_IsAnError(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"PATH=/ PMIX_MCA_gds=hash", "PMIX_NAMESPACE is not set"},
		{"PMIX_RANK=3", "missing: PMIX_NAMESPACE, PMIX_SERVER_URI*"},
		{"PMIX_NAMESPACE=a PMIX_SERVER_URI41=b", "missing: PMIX_RANK"},
		{"PMIX_NAMESPACE=a PMIX_RANK=0 PMIX_SERVER_URI2=b", ""},
	} {
		if err := CheckPMIx(strings.Fields(c.env)); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.env, err, c.want)
		}
	}
}

func TestAmbiguousVerdict_NamesVariablesAndRemedy(t *testing.T) {
	v := AmbiguousVerdict(PMIPort, PMIxNamespace, "pmix")
	for _, want := range []string{PMIPort, PMIxNamespace, "FERRY_BOOTSTRAP=pmix"} {
		if v.Status != framework.StatusUnavailable || !strings.Contains(v.Why(), want) {
			t.Errorf("%v has no %q", v, want)
		}
	}
}
