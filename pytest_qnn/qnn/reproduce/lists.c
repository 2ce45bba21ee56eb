/* Contexts out of lists of binaries: what the client is notified of. ENTRIES: those of all lists. */
#define LIST_PARAMETER UINT64_C(0x0B5F00000000)
static struct {
  void* volatile context;
  volatile uint64_t status; /* of the first notification, as the context */
  volatile int times;
} entries[ENTRIES];
static volatile int foreign; /* notifications with a parameter of no list */

/* Of one list, whether it was notified so. */
struct notified {
  int strangely, refused, twice, never;
};

static void on_created(void* context, void* graph, const char* name, uint32_t kind, void* parameter, uint64_t status) {
  (void)graph, (void)name;
  uint64_t number = (uint64_t)(uintptr_t)parameter - LIST_PARAMETER;
  if (kind != 1) return;
  if (number >> 32) ++foreign;
  if (number >= ENTRIES) return;
  if (!entries[number].times) entries[number].context = context, entries[number].status = status;
  ++entries[number].times;
}

/* Wait for those that must come, and then a little for those that must not. */
HELPER struct notified notifications(int first, int count, int accepted) {
  int missing = accepted, more = 0, twice = 0, looks = accepted ? 5 : 20;
  int64_t before = 0;
  for (int i = 0; missing && !foreign; ++i) {
    missing = 0;
    for (int each = first; each < first + count; ++each) missing += !entries[each].times;
    if (missing && !is_to_come(i, &before)) break;
  }
  missing *= !foreign;
  for (int i = 0; i < looks && !missing && !more; ++i) {
    for (int each = first; each < first + count; ++each) more += entries[each].times > accepted;
    if (!more) usleep(1000);
  }
  for (int each = first; each < first + count; ++each) twice += entries[each].times > 1;
  return (struct notified){foreign > 0, !accepted && more, twice > 0, missing > 0};
}
