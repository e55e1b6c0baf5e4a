/* A libnvidia-ml.so.1 that answers what the compiler was told, for hosts that no machine here is.
 *   CODE     what nvmlInit returns (0, 9 no driver, 18 version mismatch ...)
 *   DEVICES  how many there are; CLOSED and LOST are bit masks of those that do not open
 *   GARBLED  a bit mask of those whose name is not text
 *   REASONS  why the clocks are low, a bit mask; GLITCH more of them at the first look alone
 *   BUSY     utilisation in percent, for so many looks as LOOKS says, 0 for all of them
 *   PROCESSES how many compute; OLD, of a library that does not know how to tell
 *   CUDA     the newest CUDA of the driver: 12040 is 12.4
 */
#include <stdio.h>
#include <string.h>

#define UNINITIALIZED 1
#define NOT_SUPPORTED 3
#define NO_PERMISSION 4
#define INSUFFICIENT_SIZE 7
#define GPU_IS_LOST 15

typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process;
typedef struct {
  char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32];
} pci;

static int users = 0;
int nvmlInitWithFlags(unsigned flags) { users += CODE == 0; return CODE; }
int nvmlShutdown(void) { return users-- > 0 ? 0 : UNINITIALIZED; }
const char *nvmlErrorString(int code) { return "an error of the fake"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "550.54.14"); return 0; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { snprintf(text, size, "12.550.54.14"); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = CUDA; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = DEVICES;
  return users > 0 ? 0 : UNINITIALIZED;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (CLOSED >> index & 1) return NO_PERMISSION;
  if (LOST >> index & 1) return GPU_IS_LOST;
  *handle = (void *)(index + 1L);
  return 0;
}
static unsigned number(void *handle) { return (unsigned)((long)handle - 1); }
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
  snprintf(text, size, GARBLED >> number(handle) & 1 ? "\xff\xfe" : "Fake GPU %u", number(handle));
  return 0;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
  snprintf(text, size, "GPU-00000000-0000-0000-0000-00000000000%u", number(handle));
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci *info) {
  memset(info, 0, sizeof *info);
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", number(handle) + 10);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory *info) {
  info->total = 8ULL << 30; info->used = 1ULL << 30; info->free = 7ULL << 30;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilisation *rates) {
  static int looks = 0;
  rates->gpu = LOOKS == 0 || looks++ < LOOKS ? BUSY : 0;
  rates->memory = 0;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *value) { *value = 1; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *value) { *value = 4; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *value) { *value = 8; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *value) { *value = 16; return 0; }
/* The old name alone, as drivers before 535 have it. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
  static unsigned long long more = GLITCH;
  *reasons = REASONS | more;
  more = 0;
  return 0;
}
int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) { *mode = number(handle) == 0; return 0; }
int nvmlDeviceGetEccMode(void *handle, unsigned *now, unsigned *pending) {
  if (number(handle) > 0) return NOT_SUPPORTED;
  *now = *pending = 1;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void *handle, unsigned type, unsigned counter, unsigned long long *count) {
  *count = 2;
  return 0;
}
#if !OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *found) {
  if (PROCESSES == 0) { *count = 0; return 0; }
  if (*count < PROCESSES) { *count = PROCESSES; return INSUFFICIENT_SIZE; }
  *count = PROCESSES;
  for (unsigned at = 0; at < PROCESSES; at++) {
    memset(&found[at], 0, sizeof found[at]);
    found[at].pid = 4000 + at;
    found[at].used = 1 << 20;
  }
  return 0;
}
#endif
