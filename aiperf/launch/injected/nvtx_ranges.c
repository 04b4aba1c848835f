/* The NVTX ranges of this process by name: number, time together, shortest, longest. NVTX loads this library by
   NVTX_INJECTION64_PATH and calls InitializeInjectionNvtx2 once for each copy of NVTX in the process.

   Nothing of NVTX's headers is needed: the interface of version 3 is fixed (a test holds it against the headers of the
   toolkit at hand). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <wchar.h>


enum { MODULE_CORE = 1, MODULE_CORE2 = 5, TABLE_CALLBACKS = 1 };
enum { MESSAGE_ASCII = 1, MESSAGE_WIDE = 2, MESSAGE_REGISTERED = 3 };
enum { MOST_NAMES = 8192, MOST_DEPTH = 256, MOST_OPEN = 65536, MOST_TEXT = 1024 };

typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_kind;
  uint32_t color;
  int32_t payload_kind, reserved;
  uint64_t payload;
  int32_t message_kind;
  const void *message;
} Event;
typedef void (*Function)(void);
typedef struct {
  size_t size;
  int (*functions)(int, Function ***, unsigned *);
} Callbacks;

#ifndef AIPERF_LAYOUT_ONLY

#include "record_file.h"

typedef struct { char *text; } Registered;
typedef struct { char *text, *domain; uint64_t count, ns, least, most; } Name;
typedef struct { uint64_t id; Name *name; uint64_t start; } Open;
typedef struct { const void *domain; Name *name; uint64_t start; } Pushed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Name names[MOST_NAMES];
static size_t name_count;
static Open open_ranges[MOST_OPEN];
static atomic_uint_fast64_t next_id = 1;
static atomic_uint_fast64_t lost;
static __thread Pushed pushed[MOST_DEPTH];
static __thread int depth;

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static const char *domain_text(const void *domain) { return domain ? ((const Registered *)domain)->text : ""; }

static Name *name_of(const void *domain, const char *text) {
  const char *place = domain_text(domain);
  uint32_t hash = 2166136261u;
  for (const char *c = text; *c; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
  for (const char *c = place; *c; c++) hash = (hash ^ (uint8_t)*c) * 16777619u;
  pthread_mutex_lock(&lock);
  Name *found = NULL;
  for (size_t step = 0; step < MOST_NAMES && !found; step++) {
    Name *name = &names[(hash + step) % MOST_NAMES];
    if (name->text && (strcmp(name->text, text) || strcmp(name->domain, place))) continue;
    if (!name->text) {
      if (name_count >= MOST_NAMES / 2) break;
      name->text = strdup(text);
      name->domain = strdup(place);
      name->least = UINT64_MAX;
      name_count++;
    }
    found = name;
  }
  pthread_mutex_unlock(&lock);
  if (!found) atomic_fetch_add(&lost, 1);
  return found;
}

static void narrow(const wchar_t *wide, char *text) {
  size_t at = 0;
  for (; wide && *wide && at < MOST_TEXT - 5; wide++) {
    uint32_t c = (uint32_t)*wide;
    if (c < 0x80) text[at++] = (char)c;
    else if (c < 0x800) { text[at++] = (char)(0xC0 | c >> 6); text[at++] = (char)(0x80 | (c & 63)); }
    else if (c < 0x10000) {
      text[at++] = (char)(0xE0 | c >> 12); text[at++] = (char)(0x80 | (c >> 6 & 63)); text[at++] = (char)(0x80 | (c & 63));
    } else {
      text[at++] = (char)(0xF0 | c >> 18); text[at++] = (char)(0x80 | (c >> 12 & 63));
      text[at++] = (char)(0x80 | (c >> 6 & 63)); text[at++] = (char)(0x80 | (c & 63));
    }
  }
  text[at] = 0;
}

static Name *name_of_event(const void *domain, const Event *event) {
  char text[MOST_TEXT] = "";
  if (!event || !event->message) return name_of(domain, "(unnamed)");
  if (event->message_kind == MESSAGE_ASCII) return name_of(domain, event->message);
  if (event->message_kind == MESSAGE_REGISTERED) return name_of(domain, ((const Registered *)event->message)->text);
  if (event->message_kind == MESSAGE_WIDE) narrow(event->message, text);
  return name_of(domain, text[0] ? text : "(unnamed)");
}

static void add(Name *name, uint64_t start) {
  uint64_t ns = now() - start;
  if (!name) return;
  pthread_mutex_lock(&lock);
  name->count++;
  name->ns += ns;
  if (ns < name->least) name->least = ns;
  if (ns > name->most) name->most = ns;
  pthread_mutex_unlock(&lock);
}

static int push(const void *domain, Name *name) {
  int level = depth++;
  if (level >= MOST_DEPTH) { atomic_fetch_add(&lost, 1); return level; }
  pushed[level] = (Pushed){domain, name, now()};
  return level;
}

/* Every domain has a stack of its own; they share one here, in which the latest of a domain is looked for. */
static int pop(const void *domain) {
  if (depth > MOST_DEPTH) return --depth;
  for (int at = depth - 1; at >= 0; at--) {
    if (pushed[at].domain != domain) continue;
    add(pushed[at].name, pushed[at].start);
    memmove(&pushed[at], &pushed[at + 1], (size_t)(--depth - at) * sizeof(Pushed));
    return depth;
  }
  return -1;
}

static uint64_t start(Name *name) {
  uint64_t id = atomic_fetch_add(&next_id, 1);
  pthread_mutex_lock(&lock);
  Open *open = &open_ranges[id % MOST_OPEN];
  if (open->id) atomic_fetch_add(&lost, 1);
  *open = (Open){id, name, now()};
  pthread_mutex_unlock(&lock);
  return id;
}

static void end(uint64_t id) {
  pthread_mutex_lock(&lock);
  Open found = open_ranges[id % MOST_OPEN];
  if (found.id == id) open_ranges[id % MOST_OPEN].id = 0;
  pthread_mutex_unlock(&lock);
  if (id && found.id == id) add(found.name, found.start);
}

/* ---- what NVTX calls ---------------------------------------------------------------------------------------------- */

static const char *known(const char *text) { return text ? text : "(unnamed)"; }
static uint64_t start_event(const Event *event) { return start(name_of_event(NULL, event)); }
static uint64_t start_text(const char *text) { return start(name_of(NULL, known(text))); }
static uint64_t start_wide(const wchar_t *wide) { char text[MOST_TEXT]; narrow(wide, text); return start_text(text); }
static int push_event(const Event *event) { return push(NULL, name_of_event(NULL, event)); }
static int push_text(const char *text) { return push(NULL, name_of(NULL, known(text))); }
static int push_wide(const wchar_t *wide) { char text[MOST_TEXT]; narrow(wide, text); return push_text(text); }
static int pop_default(void) { return pop(NULL); }
static uint64_t domain_start(const void *domain, const Event *event) { return start(name_of_event(domain, event)); }
static void domain_end(const void *domain, uint64_t id) { (void)domain; end(id); }
static int domain_push(const void *domain, const Event *event) { return push(domain, name_of_event(domain, event)); }
static void *keep(const char *text) {
  Registered *made = malloc(sizeof *made);
  if (made) made->text = strdup(known(text));
  return made;
}
static void *register_text(const void *domain, const char *text) { (void)domain; return keep(text); }
static void *register_wide(const void *domain, const wchar_t *wide) {
  char text[MOST_TEXT];
  (void)domain;
  narrow(wide, text);
  return keep(text);
}
static void *create_wide(const wchar_t *wide) { return register_wide(NULL, wide); }

static void set(const Callbacks *callbacks, int module, unsigned id, Function function) {
  Function **table = NULL;
  unsigned size = 0;
  if (callbacks->functions(module, &table, &size) && table && id < size && table[id]) *table[id] = function;
}

static void body(FILE *file) {
  fprintf(file, "lost\t%lu\n", (unsigned long)atomic_load(&lost));
  for (size_t i = 0; i < MOST_NAMES; i++) {
    Name *name = &names[i];
    if (!name->text || !name->count) continue;
    for (char *c = name->text; *c; c++) if (*c == '\n' || *c == '\t' || *c == '\r') *c = ' ';
    for (char *c = name->domain; *c; c++) if (*c == '\n' || *c == '\t' || *c == '\r') *c = ' ';
    fprintf(file, "range\t%lu\t%lu\t%lu\t%lu\t%s\t%s\n", name->count, name->ns, name->least, name->most, name->domain,
            name->text);
  }
}

static void aiperf_last_words(void) {
  pthread_mutex_lock(&lock);
  aiperf_write("nvtx", body, 1);
  pthread_mutex_unlock(&lock);
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
  const Callbacks *callbacks = export_table ? export_table(TABLE_CALLBACKS) : NULL;
  if (!callbacks) return 0;
  pthread_mutex_lock(&lock);
  if (!aiperf_pid) { aiperf_begin(); aiperf_write("nvtx", NULL, 0); }
  pthread_mutex_unlock(&lock);
  set(callbacks, MODULE_CORE, 4, (Function)start_event);
  set(callbacks, MODULE_CORE, 5, (Function)start_text);
  set(callbacks, MODULE_CORE, 6, (Function)start_wide);
  set(callbacks, MODULE_CORE, 7, (Function)end);
  set(callbacks, MODULE_CORE, 8, (Function)push_event);
  set(callbacks, MODULE_CORE, 9, (Function)push_text);
  set(callbacks, MODULE_CORE, 10, (Function)push_wide);
  set(callbacks, MODULE_CORE, 11, (Function)pop_default);
  set(callbacks, MODULE_CORE2, 2, (Function)domain_start);
  set(callbacks, MODULE_CORE2, 3, (Function)domain_end);
  set(callbacks, MODULE_CORE2, 4, (Function)domain_push);
  set(callbacks, MODULE_CORE2, 5, (Function)pop);
  set(callbacks, MODULE_CORE2, 10, (Function)register_text);
  set(callbacks, MODULE_CORE2, 11, (Function)register_wide);
  set(callbacks, MODULE_CORE2, 12, (Function)keep);
  set(callbacks, MODULE_CORE2, 13, (Function)create_wide);
  return 1;
}

#endif
