"""What the scripts that write tables of Unicode share: characters of a version,
and arrays of C."""
import subprocess

BLOCK = 128  # code points of a group
HANGUL = range(0xAC00, 0xD7A4)  # syllables, which go by arithmetic
ALL = [cp for cp in range(0x110000) if not 0xD800 <= cp < 0xE000]


def present_in(version):
    """The code points that the version of Unicode has characters for."""
    program = r'''for (0 .. 0x10FFFF) {
        print $_, "\n" if !($_ >= 0xD800 && $_ < 0xE000)
            && chr =~ /\p{Present_In=%s}/;
    }''' % version
    listed = subprocess.run(["perl", "-e", program], check=True,
                            capture_output=True, text=True).stdout
    return [int(word) for word in listed.split()]


def ranges_of(cps):
    """First and last of code points in a row."""
    ranges = []
    for cp in cps:
        if ranges and ranges[-1][1] == cp - 1:
            ranges[-1][1] = cp
        else:
            ranges.append([cp, cp])
    return ranges


def groups_of(table):
    """A table of two stages: the groups of BLOCK that differ, and which of them
    each block of code points is."""
    groups, index = [], []
    for cp in range(0, len(table), BLOCK):
        group = table[cp:cp + BLOCK]
        if group not in groups:
            groups.append(group)
        index.append(groups.index(group))
    assert len(groups) <= 256
    return groups, index


def array(declaration, items, width):
    """Prints an array with `width` items, which are texts, a line."""
    print(f"\n{declaration} = {{")
    for i in range(0, len(items), width):
        print("    " + ", ".join(items[i:i + width]) + ",")
    print("};")
