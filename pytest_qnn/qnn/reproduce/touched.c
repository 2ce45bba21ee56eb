/* What memory the process has, and what of it a call touches: pages that are new are minor faults (getrusage), and
   used ones carry the mark that /proc/self/clear_refs takes away. The client's own memory is counted apart. */
#include <sys/prctl.h>
#define LISTING ((size_t)1 << 21)
#define OWN 64
#define REGION_SLACK (64 * 1024)
#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE */
struct mapping {
  unsigned long begin, end, file;
  long used;
  int grows; /* heap or stack */
};
struct touched { /* bytes; own, mapped: of the client's buffers, in all their mappings, those before the call */
  long fresh, used, own[OWN], mapped[OWN];
};
#define REGIONS 256
struct regions { /* mappings of a size: where each is, and whether a quarter of its pages is there */
  int count, begun[REGIONS];
  unsigned long at[REGIONS];
};
static struct {
  void* at;
  unsigned long file;
} own[OWN];
static int own_count;
static char* listing;
static struct touched watching __attribute__((unused));
static struct regions counting __attribute__((unused));
static size_t wanted __attribute__((unused)); /* bytes of a region */
static long faults __attribute__((unused));

HELPER long minor_faults(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

/* Read it all first: what a line is looked at with may change what it says. */
static void each_mapping(const char* path, void (*with)(const struct mapping*)) {
  size_t length = 0;
  ssize_t got = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC), there = 0;
  while (fd >= 0 && (got = read(fd, listing + length, LISTING - 1 - length)) > 0) length += (size_t)got;
  if (fd >= 0) close(fd);
  listing[length] = 0;
  struct mapping one = {0, 0, 0, 0, 0};
  for (char *line = listing, *end; (end = strchr(line, '\n')); line = end + 1) {
    *end = 0;
    unsigned long begin, behind, file;
    long kib;
    char rights[8];
    if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &begin, &behind, rights, &file) == 4) {
      if (there) with(&one);
      there = rights[1] == 'w';
      one = (struct mapping){begin, behind, file, 0, strstr(line, "[heap]") || strstr(line, "[stack]")};
    } else if (sscanf(line, "Referenced: %ld kB", &kib) == 1) {
      one.used = kib * 1024;
    }
  }
  if (there) with(&one);
}

static int holds_address(const struct mapping* one, const void* pointer) {
  return one->begin <= (unsigned long)pointer && (unsigned long)pointer < one->end;
}

/* The number of the client's buffer that lies there; -1: none does. */
static int own_at(const struct mapping* one) {
  for (int i = 0; i < own_count; ++i)
    if (holds_address(one, own[i].at) || (own[i].file && own[i].file == one->file)) return i;
  return -1;
}

/* The mapping is of this program: what it reads listings into, or its variables. */
static int is_client(const struct mapping* one) {
  extern char __bss_start[], _end[];
  int has_variables = one->begin < (unsigned long)_end && (unsigned long)__bss_start < one->end;
  return has_variables || holds_address(one, listing);
}

static void find_file(const struct mapping* one) {
  for (int i = 0; i < own_count; ++i)
    if (holds_address(one, own[i].at)) own[i].file = one->file;
}

static void set_own(int count, void* const* buffers) {
  if (!listing) listing = mmap(NULL, LISTING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (listing == MAP_FAILED) stop("there is no memory");
  own_count = 0;
  for (int i = 0; i < count && own_count < OWN; ++i) {
    own[own_count].at = buffers[i];
    own[own_count++].file = 0;
  }
  each_mapping("/proc/self/maps", find_file);
}

HELPER void count_region(const struct mapping* one) {
  size_t size = one->end - one->begin, page = (size_t)sysconf(_SC_PAGESIZE), there = 0;
  if (size < wanted || size >= wanted + REGION_SLACK || one->grows || is_client(one) || own_at(one) >= 0) return;
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) stop("the process cannot see which memory it has");
  for (size_t at = one->begin / page; at < one->end / page; ++at) {
    uint64_t entry = 0;
    if (pread(fd, &entry, sizeof entry, (off_t)(at * sizeof entry)) == sizeof entry) there += !!(entry >> 62);
  }
  close(fd);
  if (counting.count == REGIONS) return;
  counting.begun[counting.count] = there * page >= wanted / 4;
  counting.at[counting.count++] = one->begin;
}

/* The mappings of so many bytes, and little more, that can be written to. */
HELPER struct regions regions_now(size_t size, int count, void* const* buffers) {
  set_own(count, buffers);
  wanted = size;
  counting.count = 0;
  each_mapping("/proc/self/maps", count_region);
  return counting;
}

/* One was there before, and has been filled since. */
HELPER int filled(const struct regions* before, const struct regions* after) {
  for (int i = 0; i < before->count; ++i)
    for (int j = 0; j < after->count; ++j)
      if (before->at[i] == after->at[j] && !before->begun[i] && after->begun[j]) return 1;
  return 0;
}

HELPER void make_resident(const struct mapping* one) {
  int number = own_at(one);
  if (number < 0) return;
  watching.mapped[number] += (long)(one->end - one->begin);
  if (one->end - one->begin <= 1ul << 26) madvise((void*)one->begin, one->end - one->begin, POPULATE_WRITE);
}

HELPER void watch(int count, void* const* buffers) {
  set_own(count, buffers);
  memset(&watching, 0, sizeof watching);
  each_mapping("/proc/self/maps", make_resident);
  malloc_trim(0);
  prctl(PR_SET_THP_DISABLE, 1L, 0L, 0L, 0L); /* a huge page is one fault, whatever of it is needed */
  int marks = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (marks < 0 || write(marks, "1", 1) != 1) stop("the process cannot see which memory it touches");
  close(marks);
  /* A page whose translation the processor remembers is not marked: many that are unmapped make it forget all. */
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* many = mmap(NULL, 128 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; many != MAP_FAILED && i < 128; ++i) many[(size_t)i * page] = 1;
  if (many != MAP_FAILED) munmap(many, 128 * page);
  faults = minor_faults();
}

HELPER void add_used(const struct mapping* one) {
  int number = own_at(one);
  if (number >= 0) watching.own[number] += one->used;
  if (number < 0 && !is_client(one)) watching.used += one->used;
}

HELPER struct touched watched(void) {
  watching.fresh = (minor_faults() - faults) * sysconf(_SC_PAGESIZE);
  each_mapping("/proc/self/smaps", add_used);
  prctl(PR_SET_THP_DISABLE, 0L, 0L, 0L, 0L);
  return watching;
}

HELPER long least(int count, const long* numbers) {
  long found = numbers[0];
  for (int i = 1; i < count; ++i) found = numbers[i] < found ? numbers[i] : found;
  return found;
}

HELPER long most(int count, const long* numbers) {
  long found = numbers[0];
  for (int i = 1; i < count; ++i) found = numbers[i] > found ? numbers[i] : found;
  return found;
}

HELPER long within(long number, long top) {
  return number < 0 ? 0 : number > top ? top : number;
}

/* An execute touches more than a raw one, by half a tensor and more. */
HELPER int is_copy(long bytes, long raw, long size) {
  printf("        %ld bytes, a raw execute %ld\n", bytes, raw);
  return bytes > (raw > 0 ? raw : 0) + size / 2;
}
