/* A libnvidia-ml for tests. Its GPUs are lines of the file $FAKE_NVML: "<uuid> <minor> <bus id> <bytes> <state> <name>".
   state: ok, lost (every call fails), mute (no events), deaf (no processes), mig (no samples of processes). While the file $FAKE_NVML.hang exists, the
   count of GPUs is not answered. A file $FAKE_NVML.xid holds "<uuid> <xid>"; reading it removes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, LOST = 15 };
typedef struct { char uuid[96], bus[32], state[16], name[96]; unsigned minor; unsigned long long bytes; } Gpu;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { void *device; unsigned long long type, data; unsigned instance, compute; } Event;

static Gpu gpus[16];
static int count;

static void look(void) {
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    count = 0;
    if (!file) return;
    while (count < 16 && fscanf(file, "%95s %u %31s %llu %15s %95[^\n]", gpus[count].uuid, &gpus[count].minor,
                                gpus[count].bus, &gpus[count].bytes, gpus[count].state, gpus[count].name) == 6)
        count++;
    fclose(file);
}

static int lost(void *gpu) { return !strcmp(((Gpu *)gpu)->state, "lost"); }

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "error"; }
int nvmlDeviceGetCount_v2(unsigned *found) {
    char path[512];
    snprintf(path, sizeof path, "%s.hang", getenv("FAKE_NVML"));
    while (!access(path, F_OK)) usleep(1000);
    look();
    *found = count;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    if ((int)index >= count) return INVALID;
    *gpu = &gpus[index];
    return lost(*gpu) ? LOST : SUCCESS;
}
int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size) {
    if (!gpu) return INVALID;
    strncpy(text, ((Gpu *)gpu)->uuid, size);
    return SUCCESS;
}
int nvmlDeviceGetMinorNumber(void *gpu, unsigned *minor) { *minor = ((Gpu *)gpu)->minor; return SUCCESS; }
int nvmlDeviceGetName(void *gpu, char *text, unsigned size) { strncpy(text, ((Gpu *)gpu)->name, size); return SUCCESS; }
int nvmlDeviceGetPciInfo_v3(void *gpu, Pci *pci) { strncpy(pci->text, ((Gpu *)gpu)->bus, 32); return SUCCESS; }
int nvmlDeviceGetMemoryInfo(void *gpu, Memory *memory) { memory->total = ((Gpu *)gpu)->bytes; return SUCCESS; }
/* A file $FAKE_NVML.pids holds lines "<uuid> <pid> <percent of the cores> <bytes> <time in microseconds>". */
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } Running;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } Sample;
static int processes(void *gpu, Running *running, Sample *samples, unsigned *room, unsigned long long since) {
    char path[512], uuid[96];
    unsigned pid, sm, found = 0;
    unsigned long long bytes, at;
    snprintf(path, sizeof path, "%s.pids", getenv("FAKE_NVML"));
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%95s %u %u %llu %llu", uuid, &pid, &sm, &bytes, &at) == 5) {
        if (strcmp(uuid, ((Gpu *)gpu)->uuid) || (samples && at <= since)) continue;
        if (running && found < *room) running[found] = (Running){pid, bytes, 0, 0};
        if (samples && found < *room) samples[found] = (Sample){pid, at, sm, 0, 0, 0};
        found++;
    }
    if (file) fclose(file);
    int fits = (running || samples) && found <= *room;
    *room = found;
    return fits || !found ? SUCCESS : 7; /* insufficient size */
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, Running *found) {
    return strcmp(((Gpu *)gpu)->state, "deaf") ? processes(gpu, found, NULL, count, 0) : NOT_SUPPORTED;
}
int nvmlDeviceGetProcessUtilization(void *gpu, Sample *found, unsigned *count, unsigned long long since) {
    if (!strcmp(((Gpu *)gpu)->state, "mig")) return NOT_SUPPORTED;
    unsigned room = found ? *count : 0;
    Sample none;
    int code = processes(gpu, NULL, found ? found : &none, &room, since);
    *count = room;
    return !room ? 6 /* not found */ : code;
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "550.54.15", size); return SUCCESS; }
int nvmlEventSetCreate(void **set) { *set = gpus; return SUCCESS; }
int nvmlEventSetFree(void *set) { return SUCCESS; }
int nvmlDeviceRegisterEvents(void *gpu, unsigned long long types, void *set) {
    return strcmp(((Gpu *)gpu)->state, "mute") ? SUCCESS : NOT_SUPPORTED;
}
int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
    char path[512], taken[512], uuid[96];
    unsigned xid;
    snprintf(path, sizeof path, "%s.xid", getenv("FAKE_NVML"));
    snprintf(taken, sizeof taken, "%s.xid-taken", getenv("FAKE_NVML"));
    if (rename(path, taken)) { usleep(1000 * milliseconds); return TIMEOUT; }
    FILE *file = fopen(taken, "r");
    int read = file ? fscanf(file, "%95s %u", uuid, &xid) : 0;
    if (file) fclose(file);
    if (read != 2) return TIMEOUT;
    memset(event, 0, sizeof *event);
    event->type = 8; /* nvmlEventTypeXidCriticalError */
    event->data = xid;
    for (int index = 0; index < count; index++)
        if (!strcmp(gpus[index].uuid, uuid)) event->device = &gpus[index];
    return SUCCESS;
}
