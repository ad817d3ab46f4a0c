# open.awk -v want=bodies|names: ckptresume.h for the tests, which look inside it but are not to compile
# it again each. Functions of the implementation lose their `static`; with want=names their bodies too, so
# that each test includes declarations and is linked with one object made of want=bodies. Tables stay
# static: both have them. A function is what the house style makes it: its head from column 1, its braces
# alone there.

function flush_head(s) {
    printf "%s", s
    head = ""
    n_head = 0
}

{ sub(/\r$/, "") }

inside && want == "names" {
    if ($0 == "}") inside = 0
    next
}
inside {
    print
    if ($0 == "}") inside = 0
    next
}

# a head goes on until it is known what it is the head of
n_head > 0 || /^(static|CKR_API) / {
    if (n_head == 0 && (/= *[^;]*$/ || /;$/) && !/\);$/) { print; next }
    if ($0 == "{") {
        sub(/^static (inline )?/, "", head)
        if (want == "names") { sub(/^CKR_API /, "", head); sub(/\n$/, ";\n", head) }
        flush_head(head)
        if (want != "names") print
        inside = 1
        next
    }
    head = head $0 "\n"
    n_head++
    if (/\);$/) { sub(/^static (inline )?/, "", head); flush_head(head) }
    else if (/;$/ || /=/ || n_head > 12) flush_head(head)
    next
}

{ print }

END { if (inside || n_head) { print "#error open.awk: a function does not end"; exit 1 } }
