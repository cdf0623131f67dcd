// A launcher with a PMIx server for tests. It starts a program as N ranks, on one node or on two
// that it simulates, and has groups, process sets and events of deaths, which Debian's launchers
// lack.
//
//	server [-n RANKS] [-nodes 1|2] [-no-peers] [-no-groups] [-pset NAME] [-spawn HOW] -- PROGRAM ARGS
//
// -pset names the set of the odd ranks. For each rank that ends it prints "rank R: exit S" or
// "rank R: signal S" on standard error. Its ranks die with it.
//
// PMIx_Spawn starts processes of another namespace on the node of its caller. HOW is its fault:
// none (it is not supported), refuse (an error at once), fail (an error later), silent (no answer)
// or late (the processes start after two seconds, and then it answers). For a spawned process the
// server prints "spawned R: exit S" or "spawned R: signal S".
#define _GNU_SOURCE
#include <pmix.h>
#include <pmix_server.h>

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64, MOST_JOBS = 256 };

struct job {
	pmix_nspace_t nspace;
	int ranks;
	pid_t pid_of[MOST];
};

static int ranks = 2, nodes = 1, peers = 1, groups = 1;
static const char *pset, *spawn_how = "";
static int node; // index of the node of this server
static int other = -1;
// Job 0 is the first one. The lock guards the number of jobs and process ids.
static struct job jobs[MOST_JOBS];
static int njobs, pending_spawns;
static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;

static int node_of(const struct job *j, int rank) { return j == jobs ? rank * nodes / ranks : node; }

static void die(const char *what, pmix_status_t r)
{
	fprintf(stderr, "server: %s: %s\n", what, PMIx_Error_string(r));
	exit(70);
}

// Wait for a callback.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ready;

static void done(pmix_status_t r, void *cbdata)
{
	(void)cbdata;
	if (r != PMIX_SUCCESS)
		die("set-up", r);
	pthread_mutex_lock(&lock);
	ready++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void settle(const char *what, pmix_status_t r)
{
	if (r == PMIX_OPERATION_SUCCEEDED)
		return;
	if (r != PMIX_SUCCESS)
		die(what, r);
	pthread_mutex_lock(&lock);
	while (!ready)
		pthread_cond_wait(&changed, &lock);
	ready = 0;
	pthread_mutex_unlock(&lock);
}

static pmix_status_t connected(const pmix_proc_t *p, void *o, pmix_op_cbfunc_t f, void *d)
{
	(void)p, (void)o, (void)f, (void)d;
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t aborted(const pmix_proc_t *p, void *o, int status, const char msg[], pmix_proc_t procs[], size_t n,
			     pmix_op_cbfunc_t f, void *d)
{
	(void)o, (void)procs, (void)n, (void)f, (void)d;
	fprintf(stderr, "rank %u: abort %d: %s\n", p->rank, status, msg);
	pthread_mutex_lock(&jobs_lock);
	for (struct job *j = jobs; j < jobs + njobs; j++)
		for (int i = 0; i < j->ranks; i++)
			if (j->pid_of[i] > 0)
				kill(j->pid_of[i], SIGKILL);
	pthread_mutex_unlock(&jobs_lock);
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t fence(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, char *data,
			   size_t ndata, pmix_modex_cbfunc_t f, void *d)
{
	(void)procs, (void)n;
	pmix_status_t r = PMIX_SUCCESS; // all of one node have come, or it is too late
	for (size_t i = 0; i < ninfo; i++)
		if (PMIX_CHECK_KEY(&info[i], PMIX_LOCAL_COLLECTIVE_STATUS))
			r = info[i].value.data.status;
	f(r, data, ndata, d, NULL, NULL);
	return PMIX_SUCCESS;
}

static pmix_status_t events(pmix_status_t *codes, size_t n, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t f, void *d)
{
	(void)codes, (void)n, (void)info, (void)ninfo, (void)f, (void)d;
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t no_events(pmix_status_t *codes, size_t n, pmix_op_cbfunc_t f, void *d)
{
	(void)codes, (void)n, (void)f, (void)d;
	return PMIX_OPERATION_SUCCEEDED;
}

static void release(void *cbdata) { free(cbdata); }

struct infos { pmix_info_t *list; size_t n; };

static void release_infos(void *cbdata)
{
	struct infos *r = cbdata;
	PMIX_INFO_FREE(r->list, r->n);
	free(r);
}

static struct infos *infos(size_t n)
{
	struct infos *r = malloc(sizeof(*r));
	r->n = n;
	PMIX_INFO_CREATE(r->list, n);
	return r;
}

// group is called when all members of one node have come.
static pmix_status_t group(pmix_group_operation_t op, char name[], const pmix_proc_t procs[], size_t n,
			   const pmix_info_t how[], size_t nhow, pmix_info_cbfunc_t f, void *d)
{
	(void)name, (void)procs, (void)n, (void)how, (void)nhow;
	static size_t next = 1000;
	if (op != PMIX_GROUP_CONSTRUCT) {
		f(PMIX_SUCCESS, NULL, 0, d, NULL, NULL);
		return PMIX_SUCCESS;
	}
	struct infos *r = infos(1);
	size_t id = next++;
	PMIX_INFO_LOAD(&r->list[0], PMIX_GROUP_CONTEXT_ID, &id, PMIX_SIZE);
	f(PMIX_SUCCESS, r->list, r->n, d, release_infos, r);
	return PMIX_SUCCESS;
}

static pmix_status_t query(pmix_proc_t *p, pmix_query_t *q, size_t n, pmix_info_cbfunc_t f, void *d)
{
	(void)p;
	if (!pset || n != 1)
		return PMIX_ERR_NOT_FOUND;
	struct infos *r = infos(1);
	if (!strcmp(q[0].keys[0], PMIX_QUERY_PSET_NAMES)) {
		PMIX_INFO_LOAD(&r->list[0], PMIX_QUERY_PSET_NAMES, pset, PMIX_STRING);
	} else if (!strcmp(q[0].keys[0], PMIX_QUERY_PSET_MEMBERSHIP) && q[0].nqual == 1 &&
		   !strcmp(q[0].qualifiers[0].value.data.string, pset)) {
		pmix_data_array_t *a;
		PMIX_DATA_ARRAY_CREATE(a, (size_t)ranks / 2, PMIX_PROC);
		for (int i = 1; i < ranks; i += 2)
			PMIX_LOAD_PROCID(&((pmix_proc_t *)a->array)[i / 2], jobs[0].nspace, i);
		PMIX_LOAD_KEY(r->list[0].key, PMIX_QUERY_PSET_MEMBERSHIP);
		r->list[0].value.type = PMIX_DATA_ARRAY;
		r->list[0].value.data.darray = a;
	} else {
		release_infos(r);
		return PMIX_ERR_NOT_FOUND;
	}
	f(PMIX_SUCCESS, r->list, r->n, d, release_infos, r);
	return PMIX_SUCCESS;
}

// Messages between the servers of two nodes, which are requests for the values of a rank, and
// answers.
struct requester { pmix_modex_cbfunc_t f; void *d; };

struct message {
	int answer, status;
	uint32_t rank;
	struct requester *requester;
	size_t n;
	char data[32 << 10];
};

static void send_message(struct message *l)
{
	if (send(other, l, offsetof(struct message, data) + l->n, 0) < 0)
		perror("server: send");
}

static pmix_status_t modex(const pmix_proc_t *p, const pmix_info_t info[], size_t ninfo, pmix_modex_cbfunc_t f, void *d)
{
	(void)info, (void)ninfo;
	struct requester *requester = malloc(sizeof(*requester));
	*requester = (struct requester){f, d};
	struct message *l = calloc(1, sizeof(*l));
	l->rank = p->rank;
	l->requester = requester;
	send_message(l);
	free(l);
	return PMIX_SUCCESS;
}

static void modex_done(pmix_status_t r, char *data, size_t n, void *cbdata)
{
	struct message *l = cbdata;
	l->answer = 1;
	l->status = r;
	l->n = n <= sizeof(l->data) ? n : 0;
	if (l->n)
		memcpy(l->data, data, l->n);
	send_message(l);
	free(l);
}

static void *listen_to_other(void *unused)
{
	(void)unused;
	for (;;) {
		struct message *l = calloc(1, sizeof(*l));
		if (recv(other, l, sizeof(*l), 0) <= 0)
			return NULL;
		if (!l->answer) {
			pmix_proc_t p;
			PMIX_LOAD_PROCID(&p, jobs[0].nspace, l->rank);
			pmix_status_t r = PMIx_server_dmodex_request(&p, modex_done, l);
			if (r != PMIX_SUCCESS)
				modex_done(r, NULL, 0, l);
			continue;
		}
		char *data = malloc(l->n + 1);
		memcpy(data, l->data, l->n);
		l->requester->f(l->status, data, l->n, l->requester->d, release, data);
		free(l->requester);
		free(l);
	}
}

// A request of PMIx_Spawn. libpmix's thread appends it, because it must not wait for libpmix.
struct request {
	struct request *next;
	char **argv, **env, *cwd;
	int n;
	pmix_spawn_cbfunc_t f;
	void *d;
};

static struct request *requests, **last_request = &requests;
static pthread_cond_t requested = PTHREAD_COND_INITIALIZER;

static pmix_status_t spawn(const pmix_proc_t *p, const pmix_info_t info[], size_t ninfo, const pmix_app_t apps[], size_t napps,
			   pmix_spawn_cbfunc_t f, void *d)
{
	(void)p, (void)info, (void)ninfo;
	if (!strcmp(spawn_how, "refuse") || napps != 1 || apps[0].maxprocs > MOST)
		return PMIX_ERR_OUT_OF_RESOURCE;
	struct request *r = calloc(1, sizeof(*r));
	PMIX_ARGV_COPY(r->argv, apps[0].argv);
	PMIX_ARGV_COPY(r->env, apps[0].env);
	r->cwd = apps[0].cwd ? strdup(apps[0].cwd) : NULL;
	r->n = apps[0].maxprocs;
	r->f = f;
	r->d = d;
	pthread_mutex_lock(&jobs_lock);
	pending_spawns++;
	*last_request = r;
	last_request = &r->next;
	pthread_cond_signal(&requested);
	pthread_mutex_unlock(&jobs_lock);
	return PMIX_SUCCESS;
}

static pmix_server_module_t module = {
	.client_connected = connected, .client_finalized = connected, .abort = aborted, .fence_nb = fence,
	.direct_modex = modex, .register_events = events, .deregister_events = no_events, .query = query, .group = group,
	.spawn = spawn,
};

static pmix_data_array_t *array(pmix_info_t *i, const char *key, size_t n)
{
	PMIX_LOAD_KEY(i->key, key);
	i->value.type = PMIX_DATA_ARRAY;
	PMIX_DATA_ARRAY_CREATE(i->value.data.darray, n, PMIX_INFO);
	return i->value.data.darray;
}

// describe registers a job with the server of this node.
static void describe(const struct job *j)
{
	char names[64], map[8 * MOST] = "", local[8 * MOST] = "", item[16];
	int mine = 0, ranks = j->ranks, nodes_here = j == jobs ? nodes : 1;
	snprintf(names, sizeof(names), nodes_here == 2 ? "node0,node1" : node ? "node1" : "node0");
	for (int i = 0; i < ranks; i++) {
		int first = i == 0 || node_of(j, i) != node_of(j, i - 1);
		snprintf(item, sizeof(item), "%s%d", i == 0 ? "" : first ? ";" : ",", i);
		strcat(map, item);
		if (node_of(j, i) == node) {
			snprintf(item, sizeof(item), "%s%d", mine++ ? "," : "", i);
			strcat(local, item);
		}
	}
	char *regex, *ppn;
	PMIx_generate_regex(names, &regex);
	PMIx_generate_ppn(map, &ppn);
	uint32_t size = ranks, local_size = mine, n_nodes = nodes_here;
	size_t n = 1 + ranks;
	pmix_info_t *info;
	PMIX_INFO_CREATE(info, n);
	pmix_info_t *job = array(&info[0], PMIX_JOB_INFO_ARRAY, 6 + peers)->array;
	PMIX_INFO_LOAD(&job[0], PMIX_NODE_MAP, regex, PMIX_REGEX);
	PMIX_INFO_LOAD(&job[1], PMIX_PROC_MAP, ppn, PMIX_REGEX);
	PMIX_INFO_LOAD(&job[2], PMIX_JOB_SIZE, &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&job[3], PMIX_UNIV_SIZE, &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&job[4], PMIX_LOCAL_SIZE, &local_size, PMIX_UINT32);
	PMIX_INFO_LOAD(&job[5], PMIX_NUM_NODES, &n_nodes, PMIX_UINT32);
	if (peers)
		PMIX_INFO_LOAD(&job[6], PMIX_LOCAL_PEERS, local, PMIX_STRING);
	for (int i = 0; i < ranks; i++) {
		pmix_info_t *one = array(&info[1 + i], PMIX_PROC_DATA, 3)->array;
		pmix_rank_t rank = i;
		uint32_t at = node_of(j, i);
		PMIX_INFO_LOAD(&one[0], PMIX_RANK, &rank, PMIX_PROC_RANK);
		PMIX_INFO_LOAD(&one[1], PMIX_NODEID, &at, PMIX_UINT32);
		PMIX_INFO_LOAD(&one[2], PMIX_HOSTNAME, at ? "node1" : "node0", PMIX_STRING);
	}
	settle("register_nspace", PMIx_server_register_nspace(j->nspace, mine, info, n, done, NULL));
	PMIX_INFO_FREE(info, n);
}

// start starts a process. extra is its additional environment.
static void start(struct job *j, int rank, char **argv, char **extra, const char *cwd)
{
	extern char **environ;
	pmix_proc_t p;
	PMIX_LOAD_PROCID(&p, j->nspace, rank);
	settle("register_client", PMIx_server_register_client(&p, getuid(), getgid(), NULL, done, NULL));
	char **env = NULL;
	pmix_status_t r = PMIX_SUCCESS;
	for (char **e = extra; e && *e; e++) // The first value of a variable counts.
		PMIX_ARGV_APPEND(r, env, *e);
	for (char **e = environ; *e; e++)
		if (strncmp(*e, "PMIX_", 5))
			PMIX_ARGV_APPEND(r, env, *e);
	r = PMIx_server_setup_fork(&p, &env);
	if (r != PMIX_SUCCESS)
		die("setup_fork", r);
	pid_t parent = getpid();
	pthread_mutex_lock(&jobs_lock); // The end of the process is recorded after its start.
	if ((j->pid_of[rank] = fork()) == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(71);
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (cwd && chdir(cwd)) {
			perror(cwd);
			_exit(72);
		}
		execve(argv[0], argv, env);
		perror(argv[0]);
		_exit(72);
	}
	pthread_mutex_unlock(&jobs_lock);
}

// start_spawned starts the processes of a request, and answers it.
static void start_spawned(struct request *r)
{
	if (!strcmp(spawn_how, "silent"))
		return;
	if (!strcmp(spawn_how, "late"))
		sleep(2);
	if (!strcmp(spawn_how, "fail") || njobs == MOST_JOBS) {
		r->f(PMIX_ERR_JOB_FAILED_TO_LAUNCH, NULL, r->d);
		return;
	}
	struct job *j = &jobs[njobs];
	snprintf(j->nspace, sizeof(j->nspace), "%s.%d", jobs[0].nspace, njobs);
	j->ranks = r->n;
	describe(j);
	pthread_mutex_lock(&jobs_lock);
	njobs++;
	pthread_mutex_unlock(&jobs_lock);
	for (int i = 0; i < j->ranks; i++)
		start(j, i, r->argv, r->env, r->cwd);
	r->f(PMIX_SUCCESS, j->nspace, r->d);
}

// serve_requests starts spawned processes. It never ends, because they would be killed.
static void *serve_requests(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&jobs_lock);
		while (!requests)
			pthread_cond_wait(&requested, &jobs_lock);
		struct request *r = requests;
		if (!(requests = r->next))
			last_request = &requests;
		pthread_mutex_unlock(&jobs_lock);
		start_spawned(r);
		PMIX_ARGV_FREE(r->argv);
		PMIX_ARGV_FREE(r->env);
		free(r->cwd);
		free(r);
		pthread_mutex_lock(&jobs_lock);
		pending_spawns--;
		pthread_mutex_unlock(&jobs_lock);
	}
	return NULL;
}

// record_end prints the end of a process, and returns its job, or NULL if the process is unknown.
static struct job *record_end(pid_t pid, int status, int *rank)
{
	struct job *of = NULL;
	pthread_mutex_lock(&jobs_lock);
	for (struct job *j = jobs; j < jobs + njobs; j++)
		for (int i = 0; i < j->ranks; i++)
			if (j->pid_of[i] == pid) {
				of = j;
				*rank = i;
				j->pid_of[i] = 0;
			}
	pthread_mutex_unlock(&jobs_lock);
	if (of)
		fprintf(stderr, "%s %d: %s %d\n", of == jobs ? "rank" : "spawned", *rank, WIFSIGNALED(status) ? "signal" : "exit",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return of;
}

// ended prints the end of a process, and notifies the others of its namespace of a death.
static void ended(pid_t pid, int status)
{
	int rank;
	struct job *j = record_end(pid, status, &rank);
	if (!j || status == 0)
		return;
	pmix_proc_t p;
	PMIX_LOAD_PROCID(&p, j->nspace, rank);
	pmix_info_t *info;
	PMIX_INFO_CREATE(info, 1);
	PMIX_INFO_LOAD(&info[0], PMIX_EVENT_AFFECTED_PROC, &p, PMIX_PROC);
	PMIx_Notify_event(PMIX_ERR_PROC_ABORTED, &p, PMIX_RANGE_NAMESPACE, info, 1, NULL, NULL);
}

static int is_spawning(void)
{
	pthread_mutex_lock(&jobs_lock);
	int n = pending_spawns;
	pthread_mutex_unlock(&jobs_lock);
	return n > 0;
}

static int serve(char **argv)
{
	const char *tmp = getenv("TMPDIR");
	char dir[128], host[8];
	pmix_nspace_t servers;
	pmix_rank_t server = node;
	snprintf(dir, sizeof(dir), "%s/job-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return 73;
	snprintf(host, sizeof(host), "node%d", node);
	pmix_info_t *info;
	PMIX_INFO_CREATE(info, 4);
	PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, dir, PMIX_STRING);
	PMIX_INFO_LOAD(&info[1], PMIX_HOSTNAME, host, PMIX_STRING);
	// All servers of a launcher are one namespace.
	snprintf(servers, sizeof(servers), "%s.servers", jobs[0].nspace);
	PMIX_INFO_LOAD(&info[2], PMIX_SERVER_NSPACE, servers, PMIX_STRING);
	PMIX_INFO_LOAD(&info[3], PMIX_SERVER_RANK, &server, PMIX_PROC_RANK);
	if (!groups)
		module.group = NULL;
	if (!strcmp(spawn_how, "none"))
		module.spawn = NULL;
	pmix_status_t r = PMIx_server_init(&module, info, 4);
	if (r != PMIX_SUCCESS)
		die("server_init", r);
	pthread_t thread;
	if (other >= 0)
		pthread_create(&thread, NULL, listen_to_other, NULL);
	jobs[0].ranks = ranks;
	njobs = 1;
	describe(jobs);
	for (int i = 0; i < ranks; i++)
		if (node_of(jobs, i) == node)
			start(jobs, i, argv, NULL, NULL);
	pthread_create(&thread, NULL, serve_requests, NULL); // Afterwards, because both use settle.
	int status, worst = 0;
	for (pid_t pid; (pid = wait(&status)) > 0 || is_spawning();) {
		if (pid <= 0) {
			usleep(10000);
			continue;
		}
		ended(pid, status);
		if (status)
			worst = 1;
	}
	char rm[sizeof(dir) + 8];
	snprintf(rm, sizeof(rm), "rm -rf %s", dir);
	if (system(rm))
		worst = 1;
	_exit(worst); // server_finalize may hang when there were groups
}

int main(int argc, char **argv)
{
	int i = 1;
	for (; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "-n"))
			ranks = atoi(argv[++i]);
		else if (!strcmp(argv[i], "-nodes"))
			nodes = atoi(argv[++i]);
		else if (!strcmp(argv[i], "-no-peers"))
			peers = 0;
		else if (!strcmp(argv[i], "-no-groups"))
			groups = 0;
		else if (!strcmp(argv[i], "-pset"))
			pset = argv[++i];
		else if (!strcmp(argv[i], "-spawn"))
			spawn_how = argv[++i];
	}
	if (i + 1 >= argc || ranks < nodes || ranks > MOST)
		return 64;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(jobs[0].nspace, sizeof(jobs[0].nspace), "pmixtest-%d", getpid());
	if (nodes == 1)
		return serve(argv + i + 1);
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return 73;
	for (node = 0; node < 2; node++) {
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			other = pair[node];
			return serve(argv + i + 1);
		}
	}
	int status, worst = 0;
	while (wait(&status) > 0)
		if (status)
			worst = 1;
	return worst;
}
