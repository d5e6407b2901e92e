"""What a site runs in place of a job of which only the sink has something left to do."""

from speck_spark.resend import main

if __name__ == "__main__":
    main()
