/* Executions that notify the client: what they were given, and how it was at the notification. */
#define EXECUTIONS 9
#define AREAS 18
#define PARAMETER UINT64_C(0x0A5F00000000)
struct execution {
  unsigned char *area[AREAS], *before[AREAS], *output, *output_then;
  size_t size[AREAS], output_size, guard;
  int areas;
  uint64_t code; /* of the call */
  volatile int notified;
  volatile uint64_t status; /* of the notification */
  volatile long inputs_changed, overrun;
};
static struct execution executions[EXECUTIONS] __attribute__((unused));
static volatile int strange __attribute__((unused)); /* notifications with a parameter that was never given */

HELPER void given_input(struct execution* one, void* pointer, size_t size) {
  one->area[one->areas] = pointer;
  one->size[one->areas] = size;
  one->before[one->areas++] = copy_of(pointer, size);
}

HELPER void given_output(struct execution* one, void* pointer, size_t size, size_t guard) {
  one->output = pointer;
  one->output_size = size;
  one->guard = guard;
  one->output_then = calloc(1, size + 1);
}

HELPER void on_notify(void* parameter, Qnn_NotifyStatus_t status) {
  uint64_t number = (uint64_t)(uintptr_t)parameter - PARAMETER;
  if (number >= EXECUTIONS) {
    ++strange;
    return;
  }
  struct execution* one = &executions[number];
  if (!one->notified) {
    one->status = status.error;
    for (int i = 0; i < one->areas; ++i) {
      int same = one->output && one->area[i] < one->output + one->output_size && one->output < one->area[i] + one->size[i];
      if (!same) one->inputs_changed += memcmp(one->area[i], one->before[i], one->size[i]) != 0;
    }
    if (one->output) memcpy(one->output_then, one->output, one->output_size);
    if (one->output) one->overrun = (long)not_filled(one->output + one->output_size, one->guard, 0xEE);
    for (int i = 0; i < one->areas && !status.error; ++i) memset(one->area[i], 0xA5, one->size[i]);
    if (one->output && !status.error) memset(one->output, 0x5A, one->output_size);
  }
  ++one->notified;
}

/* Wait for all; the bytes that were changed after a notification. */
HELPER long wait_for(int count) {
  int64_t before = 0;
  for (int i = 0, missing = 1; missing; ++i) {
    missing = 0;
    for (int each = 0; each < count; ++each) missing += !executions[each].code && !executions[each].notified;
    if (missing && !is_to_come(i, &before)) break;
  }
  long late = 0;
  usleep(5000);
  for (int each = 0; each < count; ++each) {
    struct execution* one = &executions[each];
    if (one->code && one->output) memcpy(one->output_then, one->output, one->output_size);
    if (!one->notified || one->status) continue;
    if (one->output) late += (long)not_filled(one->output, one->output_size, 0x5A);
    for (int i = 0; i < one->areas; ++i) {
      int same = one->output && one->area[i] < one->output + one->output_size && one->output < one->area[i] + one->size[i];
      if (!same) late += (long)not_filled(one->area[i], one->size[i], 0xA5);
    }
  }
  return late;
}

HELPER int silent(int count) {
  int found = 0;
  for (int each = 0; each < count; ++each) found += !executions[each].code && !executions[each].notified;
  return found;
}

/* Where their context is freed: executions before the last that were not notified once. */
HELPER int lost(int count) {
  int found = 0;
  for (int each = 0; each < count - 1; ++each) found += executions[each].notified != !executions[each].code;
  return found;
}

/* Those that were notified of other than success (0), or than that they could not be carried out (6001, 6039). */
HELPER int ended_otherwise(int count) {
  int found = 0;
  for (int each = 0; each < count; ++each) {
    uint64_t status = executions[each].status & 0xffff;
    found += executions[each].notified && status && status != 6001 && status != 6039;
  }
  return found;
}

/* Executions before the last that failed, or were not notified of success once; a full queue (6025) may refuse. */
HELPER int amiss(int count) {
  int found = 0;
  for (int each = 0; each < count - 1; ++each) {
    struct execution* one = &executions[each];
    int full = each && (one->code & 0xffff) == 6025;
    found += full ? one->notified != 0 : one->code != 0 || one->notified != 1 || one->status != 0;
  }
  return found;
}
