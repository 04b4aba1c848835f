/* A profiler in sixty lines: NVTX loads it through NVTX_INJECTION64_PATH and it writes every range of domains to the
 * file named by NVTX_LISTENER_LOG. Like tools older than NVTX 3.2 it never answers nvtxDomainIsEnabled. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint16_t version, size; uint32_t category; int32_t colorType; uint32_t color; int32_t payloadType, reserved;
                 uint64_t payload; int32_t messageType; const char *message; } Attributes;
typedef void (**Slot)(void);
typedef struct { size_t size; int (*table)(int module, Slot **out, unsigned *count); } Callbacks;

enum { EXPORT_CALLBACKS = 1, MODULE_CORE2 = 5 };
enum { RANGE_START = 2, RANGE_END = 3, RANGE_PUSH = 4, RANGE_POP = 5, REGISTER_STRING = 10, DOMAIN_CREATE = 12 };

static uint64_t last;

static void say(const char *what, const char *domain, const char *message, uint64_t id)
{
    FILE *log = fopen(getenv("NVTX_LISTENER_LOG"), "a");
    if (!log) return;
    fprintf(log, "%s %s %s %llu\n", what, domain ? domain : "-", message ? message : "-", (unsigned long long)id);
    fclose(log);
}

static void *create(const char *name) { return strdup(name); }
static void *registered(void *domain, const char *text) { (void)domain; return strdup(text); }
static uint64_t start(void *domain, const Attributes *a) { say("start", domain, a->message, ++last); return last; }
static void end(void *domain, uint64_t id) { say("end", domain, NULL, id); }
static int push(void *domain, const Attributes *a) { say("push", domain, a->message, 0); return 0; }
static int pop(void *domain) { say("pop", domain, NULL, 0); return 0; }

int InitializeInjectionNvtx2(const void *(*exports)(uint32_t))
{
    const Callbacks *callbacks = exports(EXPORT_CALLBACKS);
    Slot *table = NULL;
    unsigned count = 0;
    if (!callbacks || !callbacks->table(MODULE_CORE2, &table, &count) || count <= DOMAIN_CREATE) return 0;
    *table[RANGE_START] = (void (*)(void))start;
    *table[RANGE_END] = (void (*)(void))end;
    *table[RANGE_PUSH] = (void (*)(void))push;
    *table[RANGE_POP] = (void (*)(void))pop;
    *table[REGISTER_STRING] = (void (*)(void))registered;
    *table[DOMAIN_CREATE] = (void (*)(void))create;
    return 1;
}
