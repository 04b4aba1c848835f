/* What the GPU did for this process, from CUPTI's activity records: the driver loads this library by
   CUDA_INJECTION64_PATH and calls InitializeInjection once, before the program's first use of a GPU.

   Nothing of CUDA's headers is needed: the fields that are read have stood at the same place in every version of their
   structures since CUDA 10 (a test holds them against the headers of the toolkit at hand). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>


enum { NOT_READY = 600 };
enum { KIND_MEMCPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 10, KIND_MEMCPY_PEER = 22 };
enum { DOMAIN_DRIVER = 1, DOMAIN_RUNTIME = 2, SITE_ENTER = 0 };
enum { MOST_GPUS = 64, MOST_NAMES = 4096, MOST_SPANS = 65536, COPY_KINDS = 12, MOST_ERRORS = 8, MOST_CONTEXTS = 64 };
enum { BUFFER_BYTES = 4 << 20, WAIT_US = 2000, MOST_WAITS = 1000, MOST_IDLE_WAITS = 10 };

/* ---- the layout of what CUPTI hands over -------------------------------------------------------------------------- */

typedef struct { uint32_t kind; } Record;
typedef struct {
  uint32_t kind, cache, partitioned[2];
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total, correlation;
  int64_t grid_id;
  const char *name;
} KernelRecord;
typedef struct {
  uint32_t kind;
  uint8_t copy, source, destination, flags;
  uint64_t bytes, start, end;
  uint32_t device;
} CopyRecord;
typedef struct {
  uint32_t kind, value;
  uint64_t bytes, start, end;
  uint32_t device;
} FillRecord;
typedef struct {
  int32_t site;
  const char *function;
  const void *parameters;
  void *result;
  const char *symbol;
  void *context;
} Call;

#ifndef AIPERF_LAYOUT_ONLY

#include "record_file.h"

typedef void (*BufferRequested)(uint8_t **, size_t *, size_t *);
typedef void (*BufferCompleted)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*Called)(void *, int32_t, uint32_t, const void *);

static int (*register_callbacks)(BufferRequested, BufferCompleted);
static int (*enable)(uint32_t);
static int (*next_record)(uint8_t *, size_t, Record **);
static int (*flush_all)(uint32_t);
static int (*dropped_records)(void *, uint32_t, size_t *);
static int (*subscribe)(void **, Called, void *);
static int (*enable_callback)(uint32_t, void *, uint32_t, uint32_t);
static int (*cupti_version)(uint32_t *);

/* ---- what is counted ---------------------------------------------------------------------------------------------- */

typedef struct { uint64_t start, end; } Span;
typedef struct { char *text; uint32_t gpu; uint64_t count, ns, least, most; } Name;
typedef struct { uint64_t count, bytes, ns; } Copies;
typedef struct {
  int seen;
  uint64_t kernels, ns, busy, first, last, zero, late;
  Copies copies[COPY_KINDS];
  Span *spans;
  size_t open;
  uint64_t horizon;
} Gpu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Gpu gpus[MOST_GPUS];
static Name names[MOST_NAMES];
static size_t name_count;
static uint64_t launches, graph_launches, recorded, dropped, nameless;
static struct { int code; const char *function; uint64_t count; } errors[MOST_ERRORS];
static void *contexts[MOST_CONTEXTS];
static char problem[512], library[4096];
static __thread int depth;

static int earlier(const void *a, const void *b) {
  const Span *x = a, *y = b;
  return x->start < y->start ? -1 : x->start > y->start;
}

/* Time in which at least one kernel ran: the union of their spans. Of many spans the earlier half is summed up and
   forgotten, for records come nearly in the order of time; `late` is what came too late for that. */
static void merge(Gpu *gpu, int all) {
  size_t kept = 0;
  if (!gpu->open) return;
  qsort(gpu->spans, gpu->open, sizeof(Span), earlier);
  for (size_t i = 1; i < gpu->open; i++) {
    if (gpu->spans[i].start <= gpu->spans[kept].end) {
      if (gpu->spans[i].end > gpu->spans[kept].end) gpu->spans[kept].end = gpu->spans[i].end;
    } else gpu->spans[++kept] = gpu->spans[i];
  }
  size_t found = kept + 1, closed = all ? found : found > MOST_SPANS / 2 ? found / 2 : 0;
  for (size_t i = 0; i < closed; i++) gpu->busy += gpu->spans[i].end - gpu->spans[i].start;
  if (closed) gpu->horizon = gpu->spans[closed - 1].end;
  memmove(gpu->spans, gpu->spans + closed, (found - closed) * sizeof(Span));
  gpu->open = found - closed;
}

static void add_span(Gpu *gpu, uint64_t start, uint64_t end) {
  if (start < gpu->horizon) { gpu->late++; start = gpu->horizon; }
  if (end <= start) return;
  if (!gpu->spans && !(gpu->spans = malloc(MOST_SPANS * sizeof(Span)))) return;
  if (gpu->open == MOST_SPANS) merge(gpu, 0);
  gpu->spans[gpu->open++] = (Span){start, end};
}

static Gpu *gpu_at(uint32_t device, uint64_t start, uint64_t end) {
  Gpu *gpu = &gpus[device < MOST_GPUS ? device : MOST_GPUS - 1];
  if (end > start) {
    if (!gpu->first || start < gpu->first) gpu->first = start;
    if (end > gpu->last) gpu->last = end;
  }
  gpu->seen = 1;
  return gpu;
}

static void add_name(const char *text, uint32_t device, uint64_t ns) {
  uint32_t hash = 2166136261u ^ device;
  for (const char *c = text; *c; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
  for (size_t step = 0; step < MOST_NAMES; step++) {
    Name *name = &names[(hash + step) % MOST_NAMES];
    if (!name->text) {
      if (name_count >= MOST_NAMES / 2 || !(name->text = strdup(text))) { nameless++; return; }
      name->gpu = device;
      name->least = ns;
      name_count++;
    } else if (name->gpu != device || strcmp(name->text, text)) continue;
    name->count++;
    name->ns += ns;
    if (ns < name->least) name->least = ns;
    if (ns > name->most) name->most = ns;
    return;
  }
}

static void add_copy(uint32_t device, unsigned kind, uint64_t bytes, uint64_t start, uint64_t end) {
  Copies *copies = &gpu_at(device, start, end)->copies[kind < COPY_KINDS ? kind : 0];
  copies->count++;
  copies->bytes += bytes;
  copies->ns += end > start ? end - start : 0;
}

static void add_kernel(const KernelRecord *kernel) {
  uint64_t ns = kernel->end > kernel->start ? kernel->end - kernel->start : 0;
  Gpu *gpu = gpu_at(kernel->device, kernel->start, kernel->end);
  gpu->kernels++;
  gpu->ns += ns;
  gpu->zero += !ns;
  recorded++;
  add_span(gpu, kernel->start, kernel->end);
  add_name(kernel->name ? kernel->name : "(unnamed)", kernel->device, ns);
}

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *buffer = aligned_alloc(8, BUFFER_BYTES);
  *size = *buffer ? BUFFER_BYTES : 0;
  *most = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  Record *record = NULL;
  size_t lost = 0;
  (void)size;
  pthread_mutex_lock(&lock);
  while (valid && !next_record(buffer, valid, &record)) {
    const CopyRecord *copy = (const CopyRecord *)record;
    const FillRecord *fill = (const FillRecord *)record;
    if (record->kind == KIND_KERNEL) add_kernel((const KernelRecord *)record);
    else if (record->kind == KIND_MEMCPY || record->kind == KIND_MEMCPY_PEER)
      add_copy(copy->device, copy->copy, copy->bytes, copy->start, copy->end);
    else if (record->kind == KIND_MEMSET) add_copy(fill->device, COPY_KINDS - 1, fill->bytes, fill->start, fill->end);
  }
  if (dropped_records && !dropped_records(context, stream, &lost)) dropped += lost;
  pthread_mutex_unlock(&lock);
  free(buffer);
}

/* Launches as the program makes them: a call of the runtime that calls the driver counts once, with its own result. */
static void called(void *user, int32_t domain, uint32_t id, const void *data) {
  const Call *call = data;
  (void)user; (void)domain; (void)id;
  if (call->site == SITE_ENTER) { depth++; return; }
  if (--depth > 0) return;
  depth = 0;
  int code = call->result ? *(const int *)call->result : 0;
  pthread_mutex_lock(&lock);
  if (call->function && strstr(call->function, "Graph")) graph_launches++;
  else launches += !code;
  for (int i = 0; code && i < MOST_ERRORS; i++) {
    if (errors[i].count && (errors[i].code != code || strcmp(errors[i].function, call->function))) continue;
    errors[i].code = code;
    errors[i].function = call->function;
    errors[i].count++;
    break;
  }
  for (int i = 0; call->context && i < MOST_CONTEXTS && contexts[i] != call->context; i++)
    if (!contexts[i]) { contexts[i] = call->context; break; }
  pthread_mutex_unlock(&lock);
}

/* ---- the end ------------------------------------------------------------------------------------------------------ */

static const char *COPY_NAMES[COPY_KINDS] = {"other", "h2d", "d2h", "h2a", "a2h", "a2a", "a2d", "d2a", "d2d", "h2h",
                                             "p2p", "fill"};

/* What a context has to say without waiting for it: an illegal address, for instance, is told to whoever asks next,
   and a program that never asks ends well. 600 while its default stream has work to do. */
static int context_status(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!driver) return 0;
  int (*push)(void *) = (int (*)(void *))dlsym(driver, "cuCtxPushCurrent_v2");
  int (*pop)(void **) = (int (*)(void **))dlsym(driver, "cuCtxPopCurrent_v2");
  int (*query)(void *) = (int (*)(void *))dlsym(driver, "cuStreamQuery");
  int found = 0;
  for (int i = 0; push && pop && query && i < MOST_CONTEXTS && contexts[i] && !found; i++) {
    void *popped;
    if (push(contexts[i])) continue;
    found = query(NULL);
    pop(&popped);
  }
  return found;
}

/* Launches that are not recorded yet still run, or never will, as those that a graph captured. A kernel that does not
   end must not keep the process. */
static void wait_for_records(void) {
  int idle = 0;
  flush_all(0);
  for (int i = 0; recorded < launches && i < MOST_WAITS && idle < MOST_IDLE_WAITS; i++) {
    uint64_t former = recorded;
    usleep(WAIT_US);
    flush_all(0);
    idle = recorded == former && context_status() != NOT_READY ? idle + 1 : 0;
  }
  flush_all(1);
}

static void write_uuid(FILE *file, uint32_t device) {
  unsigned char uuid[16];
  int handle;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int (*get)(int *, int) = driver ? (int (*)(int *, int))dlsym(driver, "cuDeviceGet") : NULL;
  int (*ask)(void *, int) = driver ? (int (*)(void *, int))dlsym(driver, "cuDeviceGetUuid_v2") : NULL;
  if (!get || !ask || get(&handle, (int)device) || ask(uuid, handle)) { fprintf(file, "device-%u", device); return; }
  for (int i = 0; i < 16; i++) fprintf(file, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

static void body(FILE *file) {
  uint32_t version = 0;
  char *(*demangle)(const char *, char *, size_t *, int *) =
      (char *(*)(const char *, char *, size_t *, int *))dlsym(RTLD_DEFAULT, "__cxa_demangle");
  if (cupti_version) cupti_version(&version);
  fprintf(file, "cupti\t%u\t%s\n", version, library);
  if (problem[0]) fprintf(file, "problem\t%s\n", problem);
  fprintf(file, "launches\t%lu\t%lu\ndropped\t%lu\nnameless\t%lu\n", launches, graph_launches, dropped, nameless);
  for (int i = 0; i < MOST_ERRORS && errors[i].count; i++)
    fprintf(file, "error\t%lu\t%d\t%s\n", errors[i].count, errors[i].code, errors[i].function);
  for (uint32_t i = 0; i < MOST_GPUS; i++) {
    Gpu *gpu = &gpus[i];
    if (!gpu->seen) continue;
    merge(gpu, 1);
    fprintf(file, "gpu\t%u\t", i);
    write_uuid(file, i);
    fprintf(file, "\t%lu\t%lu\t%lu\t%lu\t%lu\t%lu\t%lu\n", gpu->kernels, gpu->ns, gpu->busy, gpu->first, gpu->last,
            gpu->zero, gpu->late);
    for (int k = 0; k < COPY_KINDS; k++)
      if (gpu->copies[k].count)
        fprintf(file, "copy\t%u\t%s\t%lu\t%lu\t%lu\n", i, COPY_NAMES[k], gpu->copies[k].count, gpu->copies[k].bytes,
                gpu->copies[k].ns);
  }
  for (size_t i = 0; i < MOST_NAMES; i++) {
    Name *name = &names[i];
    if (!name->text) continue;
    int status = -1;
    char *plain = demangle ? demangle(name->text, NULL, NULL, &status) : NULL;
    fprintf(file, "kernel\t%u\t%lu\t%lu\t%lu\t%lu\t%s\n", name->gpu, name->count, name->ns, name->least, name->most,
            plain && !status ? plain : name->text);
    free(plain);
  }
}

static void aiperf_last_words(void) {
  if (flush_all) wait_for_records();
  int code = flush_all ? context_status() : 0;
  if (code == NOT_READY) code = 0;
  for (int i = 0; code && i < MOST_ERRORS; i++) {
    if (errors[i].count) continue;
    errors[i].count = 1;
    errors[i].code = code;
    errors[i].function = "a kernel or copy";
    break;
  }
  pthread_mutex_lock(&lock);
  aiperf_write("gpu", body, 1);
  pthread_mutex_unlock(&lock);
}

/* ---- the beginning ------------------------------------------------------------------------------------------------ */

static int usable(void *handle, const char *path) {
  snprintf(library, sizeof library, "%s", path);
  register_callbacks = (int (*)(BufferRequested, BufferCompleted))dlsym(handle, "cuptiActivityRegisterCallbacks");
  enable = (int (*)(uint32_t))dlsym(handle, "cuptiActivityEnable");
  next_record = (int (*)(uint8_t *, size_t, Record **))dlsym(handle, "cuptiActivityGetNextRecord");
  flush_all = (int (*)(uint32_t))dlsym(handle, "cuptiActivityFlushAll");
  dropped_records = (int (*)(void *, uint32_t, size_t *))dlsym(handle, "cuptiActivityGetNumDroppedRecords");
  subscribe = (int (*)(void **, Called, void *))dlsym(handle, "cuptiSubscribe");
  enable_callback = (int (*)(uint32_t, void *, uint32_t, uint32_t))dlsym(handle, "cuptiEnableCallback");
  cupti_version = (int (*)(uint32_t *))dlsym(handle, "cuptiGetVersion");
  if (!register_callbacks || !enable || !next_record || !flush_all) {
    snprintf(problem, sizeof problem, "%.400s is not CUPTI", path);
    return 0;
  }
  int code = register_callbacks(requested, completed);
  code = code ? code : enable(KIND_KERNEL);
  if (code) {
    snprintf(problem, sizeof problem, "%.400s refuses to record kernels (CUPTI error %d)", path, code);
    flush_all = NULL;
    return 0;
  }
  enable(KIND_MEMCPY);
  enable(KIND_MEMCPY_PEER);
  enable(KIND_MEMSET);
  problem[0] = 0;
  return 1;
}

static void count_launches(void) {
  static const uint32_t runtime[] = {13, 211, 213, 214, 269, 270, 272, 311, 312, 430, 431, 505, 506};
  static const uint32_t driver[] = {115, 116, 117, 307, 442, 477, 478, 480, 514, 515, 652, 653};
  void *subscriber = NULL;
  if (!subscribe || !enable_callback || subscribe(&subscriber, called, NULL)) return;
  for (size_t i = 0; i < sizeof runtime / sizeof *runtime; i++) enable_callback(1, subscriber, DOMAIN_RUNTIME, runtime[i]);
  for (size_t i = 0; i < sizeof driver / sizeof *driver; i++) enable_callback(1, subscriber, DOMAIN_DRIVER, driver[i]);
}

/* A copy that the program has loaded itself comes first: two of them in one process get in each other's way. */
int InitializeInjection(void) {
  static const char *loaded[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11", "libcupti.so"};
  char paths[16384];
  int found = 0;
  if (aiperf_pid) return 1;
  aiperf_begin();
  aiperf_write("gpu", NULL, 0);
  snprintf(problem, sizeof problem, "no libcupti could be loaded");
  for (size_t i = 0; !found && i < sizeof loaded / sizeof *loaded; i++) {
    void *handle = dlopen(loaded[i], RTLD_NOW | RTLD_NOLOAD);
    found = handle && usable(handle, loaded[i]);
  }
  snprintf(paths, sizeof paths, "%s", getenv("AIPERF_CUPTI") ? getenv("AIPERF_CUPTI") : "");
  for (char *rest = paths, *path; !found && (path = strsep(&rest, ":"));) {
    void *handle = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (*path && !handle) snprintf(problem, sizeof problem, "%.480s", dlerror());
    found = handle && usable(handle, path);
  }
  if (found) count_launches();
  return 1;
}

#endif
