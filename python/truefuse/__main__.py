from truefuse.cli import main

main()
